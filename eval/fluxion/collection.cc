#include "eval/fluxion/collection.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "engine/model/safetensors.h"
#include "engine/model/weight_files.h"
#include "eval/report/json_fields.h"
#include "eval/report/output_folder.h"
#include "eval/report/schema.h"
#include "methods/fluxion/features.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "tandem-fluxion-2";

std::vector<std::string> names(const auto& list) {
  return {list.begin(), list.end()};
}

/// What all rows have in common, and what a run that goes on must have in common with the one before.
Json plan_of(const CollectSource& source, const CollectOptions& options) {
  Json plan;
  plan["model"] = source.model;
  plan["weights_hash"] = source.weights_hash;
  plan["config_hash"] = source.config_hash;
  plan["tokenizer_hash"] = source.tokenizer_hash;
  plan["layers"] = source.shape.layers;
  plan["q_heads"] = source.shape.q_heads;
  plan["kv_heads"] = source.shape.kv_heads;
  plan["head_dim"] = source.shape.head_dim;
  plan["prompts"] = source.prompts;
  plan["files"] = Json::array();
  for (const CollectPrompt& prompt : source.list) plan["files"].push_back(prompt.file());
  plan["sinks"] = options.sinks;
  plan["window"] = options.window;
  plan["decode_steps"] = options.decode_steps;
  plan["steps"] = options.steps;
  plan["taus"] = options.taus;
  plan["mass"] = options.mass;
  plan["seed"] = options.seed;
  plan["isa"] = source.isa;
  plan["features"] = names(feature_names());
  plan["policies"] = names(kBudgetPolicyNames);
  plan["blocks"] = kLabelBlocks;
  return plan;
}

struct Shard {
  std::uint32_t tokens = 0, rows = 0;  // tokens: of the prompt
  std::string hash;
};

struct Ledger {
  std::vector<Program> programs;  // all that made shards; the first began
  Json plan;
  std::map<std::string, Shard> shards;  // by file
  bool finished = false;

  std::string text() const {
    Json json;
    json["schema"] = kSchema;
    write_programs(json, programs);
    json["plan"] = plan;
    json["shards"] = Json::array();
    for (const auto& file : plan.at("files")) {
      const auto found = shards.find(file.get<std::string>());
      if (found == shards.end()) continue;
      const Shard& shard = found->second;
      json["shards"].push_back(
          {{"file", found->first}, {"tokens", shard.tokens}, {"rows", shard.rows}, {"hash", shard.hash}});
    }
    json["finished"] = finished;
    return json_text(json, 1) + "\n";
  }

  /// Names of the shards that are in the folder, or were being written when the process ended.
  std::vector<std::string> files() const {
    std::set<std::string> names;
    for (const auto& [file, shard] : shards) names.insert(file);
    if (plan.contains("files") && plan["files"].is_array()) {
      for (const Json& file : plan["files"])
        if (file.is_string()) names.insert(file.get<std::string>());
    }
    std::erase_if(names, [](const std::string& name) {  // no name that a collection gives
      return fs::path(name).filename() != name || !is_shard(name);
    });
    return {names.begin(), names.end()};
  }

  static bool is_shard(std::string_view name) { return name.ends_with(".safetensors"); }

  static Ledger read(const fs::path& folder) {
    const fs::path file = folder / kManifest;
    return parse(read_file(file, std::size_t{256} << 20), file.string());
  }

  static Ledger parse(const std::string& text, const std::string& where) {
    const Json json = parse_object(text, where);
    ObjectReader in(json, where);
    if (const std::string schema = in.text("schema"); schema != kSchema)
      throw_input_error("{}: the field 'schema' is '{}'; this program knows '{}'.", where, schema, kSchema);
    Ledger ledger;
    ledger.programs = read_programs(in);
    ledger.plan = in.object("plan");
    for (const Json& entry : in.array("shards")) {
      ObjectReader one(entry, where + ": shards");
      const std::string name = one.text("file");
      ledger.shards[name] = {one.integer<std::uint32_t>("tokens"), one.integer<std::uint32_t>("rows"),
                             one.text("hash")};
      one.finish();
    }
    ledger.finished = in.boolean("finished");
    in.finish();
    return ledger;
  }
};

/// The first difference between two plans, as a sentence.
void check_same_plan(const fs::path& folder, const Json& before, const Json& mine) {
  for (const auto& item : mine.items()) {
    const std::string& field = item.key();
    if (before.contains(field) ? before[field] == item.value() : field == "config_hash") continue;  // older: without it
    const auto shown = [&](const Json& json) {
      if (!json.contains(field)) return std::string("nothing");
      return json[field].is_array() ? fmt::format("a list of {}", json[field].size()) : json_text(json[field]);
    };
    throw_input_error(
        "The collection in '{}' was begun with another plan: '{}' is {} there and {} here. Continue it with the "
        "command that began it, or give another --out.",
        folder.string(), field, shown(before), shown(mine));
  }
}

const FileSet& collection_files() {
  const auto is_ours = [](const std::string& manifest) {
    try {
      Ledger::parse(manifest, kManifest);
      return true;
    } catch (const InputError&) {
      return false;
    }
  };
  const auto names = [](const std::string& manifest) { return Ledger::parse(manifest, kManifest).files(); };
  static const FileSet files = {is_ours, names, Ledger::is_shard};
  return files;
}

/// The folder as this mode needs it, locked; nothing where there is none yet and none is to be made.
OutputFolder opened(const fs::path& path, CollectMode mode, bool make) {
  const fs::path found = normalised(path);
  std::error_code refused;
  const bool there = fs::exists(found, refused);
  if (there && !fs::is_directory(found, refused)) throw_input_error("--out: '{}' is no folder.", found.string());
  if (mode == CollectMode::resume && !there)
    throw_input_error("--resume: there is no collection in '{}' to continue.", found.string());
  if (!there && !make) {
    check_can_be_made(found);
    return {};
  }
  OutputFolder folder = OutputFolder::make(path);
  folder.finish_replacement(collection_files());
  const bool collection = folder.has(kManifest);
  if (mode == CollectMode::resume) {
    if (!collection) throw_input_error("--resume: there is no collection in '{}' to continue.", found.string());
    Ledger::read(found);
    return folder;
  }
  if (folder.is_free(collection_files())) return folder;
  if (!collection) {
    throw_input_error("--out: the folder '{}' has files in it and none of them is a collection's manifest.json.",
                      found.string());
  }
  if (mode == CollectMode::create) {
    throw_input_error("--out: there is a collection in '{}' already; --resume continues it and --force replaces it.",
                      found.string());
  }
  Ledger::read(found);  // it must be one of ours to be deleted
  return folder;
}

/// What is written, and when: nothing before the first prompt is finished, which replaces an earlier collection.
class Writer {
 public:
  Writer(const OutputFolder& folder, bool begun) : folder_(folder), begun_(begun) {}

  fs::path path(const std::string& file) const { return folder_.path() / file; }

  void write(const Ledger& ledger, const std::vector<std::pair<std::string, std::string>>& files = {}) {
    if (begun_) {
      for (const auto& [file, bytes] : files) folder_.write(file, bytes);
      return folder_.write(kManifest, ledger.text());
    }
    folder_.replace(files, ledger.text(), collection_files());
    begun_ = true;
  }

  /// A shard, in the folder and its manifest or, where that fails, not in the ledger.
  void add(Ledger& ledger, const std::string& file, const std::string& bytes, Shard shard, const Program& program) {
    Ledger with = ledger;
    if (with.shards.empty()) with.programs.clear();
    with.programs = with_program(std::move(with.programs), program);
    with.shards[file] = std::move(shard);
    write(with, {{file, bytes}});
    ledger = std::move(with);
    made_.push_back(file);
  }

  /// Removes what this process made.
  void take_back(Ledger& ledger) {
    if (made_.empty()) return;
    for (const std::string& file : made_) ledger.shards.erase(file);
    ledger.finished = false;
    write(ledger);
    for (const std::string& file : made_) folder_.remove(file);
  }

 private:
  const OutputFolder& folder_;
  bool begun_;
  std::vector<std::string> made_;
};

/// The ledger of a collection that goes on. InputError where it was begun with another plan.
Ledger continued(Ledger before, const fs::path& folder, const Json& plan) {
  check_same_plan(folder, before.plan, parse_ordered_json(json_text(plan), "the plan"));
  before.finished = false;
  const Json& wanted = plan.at("files");
  std::erase_if(before.shards, [&](const auto& shard) {
    return std::find(wanted.begin(), wanted.end(), shard.first) == wanted.end();
  });
  return before;
}

/// Makes the shards that the ledger lacks, and those that are no longer what was written.
void fill(Writer& out, Ledger& ledger, Engine& engine, ThreadPool& pool, const CollectSource& source,
          const CollectOptions& options, const CollectProgress& progress, CollectResult& result) {
  std::uint64_t total = 0, done = 0;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < source.list.size(); ++i) {
    const std::string file = source.list[i].file();
    const auto known = ledger.shards.find(file);
    total += source.list[i].length;
    if (known != ledger.shards.end()) {
      const bool there = path_exists(out.path(file));
      if (there && hash_digits(read_file(out.path(file), kMostOfData)) == known->second.hash) {
        done += source.list[i].length;
        continue;
      }
      result.repairs.push_back(fmt::format("{} is {}; it is made again.", out.path(file).string(),
                                           there ? "not what was written" : "missing"));
      // Whoever reads the folder before that is done shall know.
      ledger.shards.erase(known);
      out.write(ledger);
    }
    missing.push_back(i);
  }
  for (const std::size_t i : missing) {
    const CollectPrompt& prompt = source.list[i];
    const std::string file = prompt.file();
    if (progress) progress(done, total, file);
    done += prompt.length;
    const std::vector<std::int32_t> tokens = source.tokens(prompt);
    const FluxionSamples samples = collect_samples(engine, pool, file, tokens, i, options);
    const std::string bytes = samples.bytes();
    if (source.check_weights) source.check_weights(/*all_bytes=*/false);
    out.add(ledger, file, bytes, {static_cast<std::uint32_t>(tokens.size()), samples.rows, hash_digits(bytes)},
            {source.tandem_version, source.git_commit});
  }
  if (progress) progress(done, total, "");
  if (source.check_weights) source.check_weights(/*all_bytes=*/true);
  ledger.finished = true;
  out.write(ledger);
  result.shards = ledger.shards.size();
  for (const auto& [file, shard] : ledger.shards) result.rows += shard.rows;
}

}  // namespace

std::string CollectPrompt::file() const {
  return fmt::format("{}-{}-{:04}.safetensors", task, length, index);
}

void check_collection(const fs::path& folder, CollectMode mode) {
  opened(folder, mode, /*make=*/false);
}

CollectResult collect_fluxion(const fs::path& path, CollectMode mode, Engine& engine, ThreadPool& pool,
                              const CollectSource& source, const CollectOptions& options,
                              const CollectProgress& progress) {
  const OutputFolder folder = opened(path, mode, /*make=*/true);
  Ledger ledger{{{source.tandem_version, source.git_commit}}, plan_of(source, options), {}, false};
  if (mode == CollectMode::resume) ledger = continued(Ledger::read(folder.path()), folder.path(), ledger.plan);
  Writer out(folder, mode == CollectMode::resume);
  const auto keeps = [&] {
    folder.check_there();
    return !ledger.shards.empty();
  };
  const std::string go_on = mode == CollectMode::resume
                                ? "the same command goes on"
                                : fmt::format("the same command with --resume{} goes on",
                                              mode == CollectMode::replace ? " in place of --force" : "");
  CollectResult result;
  try {
    fill(out, ledger, engine, pool, source, options, progress, result);
  } catch (const FolderLost&) {
    throw;
  } catch (const WeightsChanged& error) {
    out.take_back(ledger);
    throw_run_error("{} No prompt of this process counts. Put the weights back; then {}.", error.what(),
                    folder.has(kManifest) ? go_on : "the same command begins anew");
  } catch (const Interrupted&) {
    if (keeps()) throw_run_error("Interrupted: finished prompts are kept in '{}'; {}.", folder.path().string(), go_on);
    if (mode == CollectMode::resume) throw_run_error("Interrupted before a prompt was finished; {}.", go_on);
    throw_run_error("Interrupted before a prompt was finished; '{}' is as it was, and the same command begins anew.",
                    folder.path().string());
  } catch (const RunError& error) {  // a full disk, for example
    if (!keeps()) throw;
    throw_run_error("{} Finished prompts are kept; {}.", error.what(), go_on);
  }
  return result;
}

}  // namespace tandem::eval
