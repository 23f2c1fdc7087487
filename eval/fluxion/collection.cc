#include "eval/fluxion/collection.h"

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "engine/common/error.h"
#include "engine/common/json.h"
#include "engine/common/read_file.h"
#include "engine/model/safetensors.h"
#include "eval/report/aside.h"
#include "eval/report/folder_lock.h"
#include "eval/report/json_reader.h"
#include "eval/report/line_file.h"
#include "methods/fluxion/features.h"

namespace tandem::eval {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "tandem-fluxion-2";

Json names(const auto& list) {
  Json out = Json::array();
  for (const std::string_view name : list) out.push_back(std::string(name));
  return out;
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

std::string hash_of(std::string_view bytes) {
  return fmt::format("{:016x}", content_hash(std::as_bytes(std::span(bytes.data(), bytes.size()))));
}

struct Ledger {
  std::vector<Program> programs;  // all that made shards; the first began
  Json plan;
  std::map<std::string, Shard> shards;  // by file
  bool finished = false;

  void write(const fs::path& folder) const {
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
    write_file(folder / kManifest, json_text(json, 1) + "\n");
    if (!shards.empty()) drop_aside(folder);  // a finished prompt is worth more than what it replaces
  }

  /// A shard that was written: in the folder's manifest, or, where that fails, nowhere.
  void add(const fs::path& folder, const std::string& file, Shard shard, const Program& program) {
    const Ledger before = *this;
    if (shards.empty()) programs.clear();
    programs = with_program(std::move(programs), program);
    shards[file] = std::move(shard);
    try {
      write(folder);
    } catch (...) {
      *this = before;
      throw;
    }
  }

  /// What is in the folder, or was being written when the process ended; the manifest first.
  std::vector<std::string> files() const {
    std::set<std::string> shard_files;
    for (const auto& [file, shard] : shards) shard_files.insert(file);
    if (plan.contains("files") && plan["files"].is_array()) {
      for (const Json& file : plan["files"])
        if (file.is_string()) shard_files.insert(file.get<std::string>());
    }
    std::vector<std::string> names = {kManifest, std::string(kManifest) + ".new"};
    for (const std::string& file : shard_files) {
      if (fs::path(file).filename() != file || !file.ends_with(".safetensors")) continue;  // no name that it gives
      names.insert(names.end(), {file, file + ".new"});
    }
    return names;
  }

  static Ledger read(const fs::path& folder) {
    const fs::path file = folder / kManifest;
    const std::string text = read_file(file, std::size_t{256} << 20);
    const Json json = parse_object(text, file.string());
    ObjectReader in(json, file.string());
    if (const std::string schema = in.text("schema"); schema != kSchema)
      throw_input_error("{}: the field 'schema' is '{}'; this program knows '{}'.", file.string(), schema, kSchema);
    Ledger ledger;
    ledger.programs = read_programs(in);
    ledger.plan = in.object("plan");
    for (const Json& entry : in.array("shards")) {
      ObjectReader one(entry, file.string() + ": shards");
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

void undo_a_killed_collection(const fs::path& folder) {
  undo_a_killed_beginning(
      folder, [&] { return !Ledger::read(folder).shards.empty(); }, [&] { return Ledger::read(folder).files(); });
}

/// The folder is locked and whole.
void check_free(const fs::path& folder, CollectMode mode) {
  std::error_code refused;
  const bool there = fs::exists(folder, refused), collection = fs::exists(folder / kManifest, refused);
  if (there && !fs::is_directory(folder, refused)) throw_input_error("--out: '{}' is no folder.", folder.string());
  if (mode == CollectMode::resume) {
    if (!collection) throw_input_error("--resume: there is no collection in '{}' to continue.", folder.string());
    Ledger::read(folder);
    return;
  }
  if (!there || fs::is_empty(folder, refused)) return;
  if (!collection) {
    throw_input_error("--out: the folder '{}' has files in it and none of them is a collection's manifest.json.",
                      folder.string());
  }
  if (mode == CollectMode::create) {
    throw_input_error("--out: there is a collection in '{}' already; --resume continues it and --force replaces it.",
                      folder.string());
  }
  Ledger::read(folder);  // it must be one of ours to be deleted
}

/// The ledger of a collection that goes on. InputError where it was begun with another plan.
Ledger continued(Ledger before, const fs::path& folder, const CollectSource& source, const Json& plan) {
  check_same_plan(folder, before.plan, parse_ordered_json(json_text(plan), "the plan"));
  before.finished = false;
  std::set<std::string> wanted;
  for (const CollectPrompt& prompt : source.list) wanted.insert(prompt.file());
  std::erase_if(before.shards, [&](const auto& shard) { return !wanted.contains(shard.first); });
  return before;
}

/// Makes the shards that the ledger lacks, and those that are no longer what was written.
void fill(const fs::path& folder, Ledger& ledger, Engine& engine, ThreadPool& pool, const CollectSource& source,
          const CollectOptions& options,
          const std::function<void(std::uint64_t, std::uint64_t, std::string_view)>& progress, CollectResult& result) {
  std::uint64_t total = 0, done = 0;
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < source.list.size(); ++i) {
    const std::string file = source.list[i].file();
    const auto known = ledger.shards.find(file);
    total += source.list[i].length;
    if (known != ledger.shards.end()) {
      const bool there = path_exists(folder / file);
      if (there && hash_of(read_file(folder / file, kMostOfData)) == known->second.hash) {
        done += source.list[i].length;
        continue;
      }
      result.repairs.push_back(fmt::format("{} is {}; it is made again.", (folder / file).string(),
                                           there ? "not what was written" : "missing"));
      // Whoever reads the folder before that is done shall know.
      ledger.shards.erase(known);
      ledger.write(folder);
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
    write_file(folder / file, bytes);
    ledger.add(folder, file, {static_cast<std::uint32_t>(tokens.size()), samples.rows, hash_of(bytes)},
               {source.tandem_version, source.git_commit});
  }
  if (progress) progress(done, total, "");
  ledger.finished = true;
  ledger.write(folder);
  result.shards = ledger.shards.size();
  for (const auto& [file, shard] : ledger.shards) result.rows += shard.rows;
}

}  // namespace

std::string CollectPrompt::file() const {
  return fmt::format("{}-{}-{:04}.safetensors", task, length, index);
}

void check_collection(const fs::path& folder, CollectMode mode) {
  const FolderLock lock(folder);
  undo_a_killed_collection(folder);
  check_free(folder, mode);
}

CollectResult collect_fluxion(
    const fs::path& folder, CollectMode mode, Engine& engine, ThreadPool& pool, const CollectSource& source,
    const CollectOptions& options,
    const std::function<void(std::uint64_t done, std::uint64_t total, std::string_view prompt)>& progress) {
  FolderLock lock(folder);  // of nothing where there is no folder yet
  undo_a_killed_collection(folder);
  check_free(folder, mode);
  std::error_code refused;
  const bool existed = fs::exists(folder, refused);
  Ledger ledger{{{source.tandem_version, source.git_commit}}, plan_of(source, options), {}, false};
  if (mode == CollectMode::resume) {
    ledger = continued(Ledger::read(folder), folder, source, ledger.plan);
  } else if (path_exists(folder / kManifest)) {
    set_aside(folder, Ledger::read(folder).files());
  }
  fs::create_directories(folder, refused);
  if (refused) throw_run_error("The folder '{}' cannot be made ({}).", folder.string(), refused.message());
  if (!lock.held()) lock = FolderLock(folder);
  // Finished prompts are worth more than what they replace; where there are none, all is as it was.
  const auto keeps = [&] {
    if (!ledger.shards.empty() || mode == CollectMode::resume) return !ledger.shards.empty();
    remove_files(folder, ledger.files());
    if (lies_aside(folder)) {
      bring_back(folder);
    } else if (!existed) {
      fs::remove(folder, refused);
    }
    return false;
  };
  const std::string go_on = mode == CollectMode::resume
                                ? "the same command goes on"
                                : fmt::format("the same command with --resume{} goes on",
                                              mode == CollectMode::replace ? " in place of --force" : "");
  CollectResult result;
  try {
    if (mode != CollectMode::resume) ledger.write(folder);
    fill(folder, ledger, engine, pool, source, options, progress, result);
  } catch (const Interrupted&) {
    if (keeps()) throw_run_error("Interrupted: finished prompts are kept in '{}'; {}.", folder.string(), go_on);
    if (mode == CollectMode::resume) throw_run_error("Interrupted before a prompt was finished; {}.", go_on);
    throw_run_error("Interrupted before a prompt was finished; '{}' is as it was, and the same command begins anew.",
                    folder.string());
  } catch (const RunError& error) {  // a full disk, for example
    if (!keeps()) throw;
    throw_run_error("{} Finished prompts are kept; {}.", error.what(), go_on);
  } catch (...) {
    keeps();
    throw;
  }
  return result;
}

}  // namespace tandem::eval
