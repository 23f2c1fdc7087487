#include "cli/run.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <optional>
#include <unistd.h>
#include <utility>

#include "cli/output.h"
#include "engine/common/error.h"
#include "engine/common/interrupt.h"
#include "engine/common/version.h"
#include "engine/kernels/blas.h"
#include "engine/kernels/isa.h"
#include "engine/model/utf8.h"
#include "engine/model/weight_files.h"
#include "eval/report/run_folder.h"
#include "eval/report/table.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr std::uint32_t kMostShards = 10000;
constexpr std::size_t kFolderBytes = std::size_t{64} << 30;  // of --prefix-cache

/// Warns when another build made the samples.
void say_programs(const eval::RunFolder& folder, const eval::Manifest& mine) {
  const eval::Program& program = mine.programs.front();
  std::string others;
  for (const eval::Program& made : folder.manifest().programs) {
    if (made != program)
      others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", made.tandem_version, made.git_commit);
  }
  if (others.empty()) return;
  say(fmt::format(
      "Samples in '{}' were made by tandem {}; this is tandem {} ({}). manifest.json names all that made samples.",
      folder.path().string(), others, program.tandem_version, program.git_commit));
}

bool uses_openblas(const eval::Manifest& manifest, const Session& session) {
  const ModelShape shape = shape_of(session.model.config);
  return !session.device->is_gpu() &&
         std::any_of(manifest.methods.begin(), manifest.methods.end(), [&](const eval::MethodEntry& entry) {
           return make_method(entry.label)->needs(shape).eigenvectors;
         });
}

/// Where a run goes that names no folder. Others may have begun in the same second.
std::string new_folder(const std::string& what) {
  std::string path = fmt::format("runs/{}-{}", what, eval::utc_now());
  std::replace(path.begin(), path.end(), ':', '-');
  std::string free = path;
  for (int number = 2; std::filesystem::exists(free); ++number) free = fmt::format("{}-{}", path, number);
  return free;
}

}  // namespace

void add_run_options(Command command, RunOptions& options, const std::string& what) {
  command.option("--out", options.out, fmt::format("Run folder (default: runs/{}-<time>)", what));
  command.flag("--force", options.force, "Replace an earlier run in that folder");
  command.flag("--resume", options.resume,
               "Continue an interrupted run in that folder; damaged lines of it are run again");
  command.option("--prefix-cache", options.prefix_cache,
                 "Folder for the KV of prompts: prompts that begin alike, in this run and later ones, prefill what "
                 "they share once. Only on a simulated clock. memory: this run alone, in the KV store, on any device");
  command.option("--prefix-cache-bytes", options.prefix_cache_bytes,
                 "Most bytes of it; the least recently used go first [64G in a folder, half of --device-kv in memory]");
  command.option("--shard", options.shard,
                 "I/N: run part I of N into a folder of its own, for example on N machines; `tandem merge` joins them. "
                 "rank: mpirun or srun says I and N, and --out gets a folder for each (on one machine give "
                 "--threads, too: each process takes all it may)");
  command.flag("--no-plot", options.no_plot,
               "Draw no plot and make no report.html; a plot that is there of the same samples stays");
  command.flag("--quiet", options.quiet, "No progress line");
  command.flag("--json", options.json, json_help("summary.json"));
}

bool draw(const std::string& script, const std::filesystem::path& folder, const std::string& picture, bool wanted) {
  std::error_code ignored;
  // Of the same samples: RunFolder::resume() removes those of others.
  if (!wanted) return std::filesystem::exists(folder / (picture + ".png"), ignored);
  for (const char* end : {".png", ".svg"}) std::filesystem::remove(folder / (picture + end), ignored);
  const std::optional<std::string> why_not = eval::draw_plot(script, folder);
  if (why_not && !why_not->empty()) say(*why_not);
  return !why_not;
}

PrefixCacheOptions prefix_cache_of(const RunOptions& run, const Session& session) {
  if (run.prefix_cache.empty()) return {};
  const bool in_memory = run.prefix_cache == kInMemory;
  PrefixCacheOptions options;
  options.bytes = in_memory ? session.engine.kv.device_bytes / 2 : kFolderBytes;
  if (!run.prefix_cache_bytes.empty()) options.bytes = eval::parse_size(run.prefix_cache_bytes, "--prefix-cache-bytes");
  if (in_memory) return options;
  options.folder = run.prefix_cache;
  options.identity = fmt::format("engine {}, weights {}, config {}, {}, {}, profile {}", engine_hash(),
                                 session.model.weights_hash, session.model.config_hash, to_string(active_isa()),
                                 session.device->clock_name(), session.hardware_hash);
  options.check = [weights = session.weights] { weights->check(); };
  options.warn = [](const std::string& sentence) {
    // On a terminal the line of progress is there already.
    say((isatty(STDERR_FILENO) == 1 ? "\n" : "") + sentence);
  };
  return options;
}

void settle_shard(RunOptions& options) {
  if (options.shard != "rank") return;
  if (options.out.empty())
    throw_input_error("--shard rank needs --out, the folder in which each process gets one of its own.");
  const std::pair<const char*, const char*> launchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
  std::pair<const char*, const char*> half = {nullptr, nullptr};
  for (const auto& [rank_name, size_name] : launchers) {
    const char *rank = std::getenv(rank_name), *size = std::getenv(size_name);
    if (rank != nullptr && size == nullptr) half = {rank_name, size_name};
    if (rank == nullptr || size == nullptr) continue;
    const std::uint64_t of = eval::parse_count(size, size_name, 1, kMostShards),
                        number = eval::parse_count(rank, rank_name, 0, of - 1);
    options.shard = fmt::format("{}/{}", number + 1, of);
    // The folders sort as they are numbered.
    const std::string name = fmt::format("{:0{}}-of-{}", number + 1, std::to_string(of).size(), of);
    options.out = (std::filesystem::path(options.out) / name).string();
    options.quiet = options.quiet || number > 0;
    options.ranked = true;
    return;
  }
  if (half.first != nullptr)
    throw_input_error(
        "--shard rank: {} is set, but {} is not, which says of how many: give the part itself, such as 2/4.",
        half.first, half.second);
  throw_input_error(
      "--shard rank asks mpirun or srun which process this is, and no variable of theirs says it "
      "(OMPI_COMM_WORLD_RANK, PMI_RANK, SLURM_PROCID): give the part itself, such as 2/4.");
}

eval::Shard shard_of(const RunOptions& options) {
  if (options.shard.empty()) return {};
  const std::size_t slash = options.shard.find('/');
  if (slash == std::string::npos)
    throw_input_error("--shard is '{}': give which part and of how many, such as 2/4, or rank.", options.shard);
  const std::string_view text = options.shard;
  eval::Shard shard;
  shard.of = static_cast<std::uint32_t>(eval::parse_count(text.substr(slash + 1), "--shard", 1, kMostShards));
  shard.number = static_cast<std::uint32_t>(eval::parse_count(text.substr(0, slash), "--shard", 1, shard.of));
  return shard;
}

void check_run_options(const RunOptions& options, const SessionOptions& session) {
  if (!options.prefix_cache.empty() && options.prefix_cache != kInMemory && session.device != "sim")
    throw_input_error(
        "--prefix-cache keeps prefills with the times that they had, and with --device {} those have to be measured in "
        "the run itself: leave it away, or give --prefix-cache {}.",
        session.device, kInMemory);
  if (!options.prefix_cache_bytes.empty() && options.prefix_cache.empty())
    throw_input_error("--prefix-cache-bytes limits --prefix-cache: give that too.");
  if (options.force && options.resume)
    throw_input_error("--force replaces a run and --resume continues it: give one of them.");
  if (options.resume && options.out.empty())
    throw_input_error("--resume needs --out, the folder of the run to continue.");
  shard_of(options);
  if (options.json && !options.shard.empty())
    throw_input_error("--json prints a whole run's summary.json, and --shard makes a part: leave one of them away.");
  // Before anything slow: the run itself asks again.
  if (!options.out.empty() && !options.resume) eval::RunFolder::check_new(options.out, options.force);
}

void describe_session(const SessionOptions& options, const Session& session, eval::Manifest& manifest) {
  name_origin(session, manifest);
  manifest.config_hash = session.model.config_hash;
  manifest.precision = to_string(session.engine.precision);
  manifest.prefill_chunk = session.engine.prefill_chunk;
  if (options.device == "sim") manifest.hardware_profile = options.hardware;
  manifest.hardware_hash = session.hardware_hash;
  manifest.clock = session.device->clock_name();
  manifest.machine = eval::this_machine();
  manifest.machine.device = session.device->gpu_name();
  manifest.isa = to_string(active_isa());
  manifest.threads = session.pool->size();
  manifest.started_utc = eval::utc_now();
}

void say_repairs(const std::vector<std::string>& repairs) {
  constexpr std::size_t kSaid = 10;
  for (std::size_t i = 0; i < std::min(repairs.size(), kSaid); ++i) say(repairs[i]);
  if (repairs.size() > kSaid) say(fmt::format("{} more damaged lines are treated alike.", repairs.size() - kSaid));
}

eval::RunFolder open_run(const RunOptions& options, const std::string& what, const Session& session,
                         eval::Manifest manifest) {
  if (uses_openblas(manifest, session)) {
    check_blas();
    manifest.openblas = blas_kernels();
  }
  // Names of files may be any bytes; what results say is text, and a resumed run compares it.
  manifest.command = repair_utf8(manifest.command);
  manifest.model = repair_utf8(manifest.model);
  manifest.hardware_profile = repair_utf8(manifest.hardware_profile);
  const std::string path = options.out.empty() ? new_folder(what) : options.out;
  const bool not_begun = options.ranked && !eval::holds_run(path);
  if (!options.resume || not_begun) return eval::RunFolder::create(path, manifest, options.force);
  eval::RunFolder folder = eval::RunFolder::resume(path, manifest);
  say_repairs(folder.repairs());
  say_programs(folder, manifest);
  return folder;
}

void fill_run(const RunOptions& options, eval::RunFolder& folder, const Session& session, Progress& progress,
              const std::function<void()>& work, const std::function<void()>& report) {
  const std::string path = folder.path().string();
  std::string go_on = options.ranked
                          ? "go on with the same command and --resume"
                          : fmt::format("go on with the same options and --resume --out {}", eval::shell_word(path));
  if (options.force) go_on += " in place of --force";
  WeightFiles& weights = *session.weights;
  folder.before_each_line([&] { weights.check(); });
  const auto fail_for_weights = [&](const WeightsChanged& error) {
    const KeepingWork keeping;
    progress.finish();
    folder.take_back();
    if (!folder.begun()) throw_run_error("{} Nothing was written.", error.what());
    throw_run_error(
        "{} No sample of this process counts{}. Put the weights back and {}, or replace the run with --force.",
        error.what(), folder.finished().empty() ? "" : "; those before are kept", go_on);
  };
  const auto keeps_samples = [&] {
    const KeepingWork keeping;
    progress.finish();
    folder.output().check_there();
    try {
      weights.check();
    } catch (const WeightsChanged& error) {
      fail_for_weights(error);
    }
    return !folder.finished().empty();
  };
  try {
    work();
    weights.check_bytes();
  } catch (const WeightsChanged& error) {
    fail_for_weights(error);
  } catch (const eval::FolderLost&) {  // which says itself what is kept
    progress.finish();
    throw;
  } catch (const Interrupted&) {
    if (!keeps_samples())
      throw_run_error("Interrupted before a sample was finished; {} is as it was, and the same command begins anew.",
                      path);
    throw RunError("Interrupted; finished samples are kept. To continue, " + go_on + ".");
  } catch (const RunError& error) {  // a full disk, for example
    if (!keeps_samples()) throw;
    throw_run_error("{} Finished samples are kept. To continue, {}.", error.what(), go_on);
  } catch (const InputError& error) {  // too little room for KV, for example, which a later sample needed
    if (!keeps_samples()) throw;
    throw_input_error("{} Finished samples are kept. When that is mended, {}; --device-kv and --host-kv may be others.",
                      error.what(), go_on);
  } catch (...) {  // too little memory, or a mistake of ours: what is finished is as good as before
    if (keeps_samples()) say(fmt::format("Finished samples are kept. To continue, {}.", go_on));
    throw;
  }
  folder.before_each_line({});
  progress.finish();
  const std::uint64_t all = folder.manifest().all_samples() * folder.manifest().methods.size();
  std::uint64_t there = 0;
  {
    const KeepingWork keeping;
    there = folder.finished().size();
  }
  if (there < all && options.shard.empty()) {
    throw_run_error(
        "{} of {} finished samples are missing in '{}', which something else changed. To run them again, {}.",
        all - there, all, path, go_on);
  }
  if (there < all) {
    if (there > 0) {
      print(
          "{}: {} of the run's {} samples, counted with every method. When all shards are there, join them:\n"
          "  tandem merge FOLDER FOLDER ... --out FOLDER\n",
          path, there, all);
    } else if (options.ranked) {  // an error would end the processes that have something to do
      print("{}: the run has fewer batches than there are processes, and none for this one.\n", path);
    } else {
      throw_input_error(
          "--shard {}: the run has too few batches for so many shards, and this shard has none: give fewer shards.",
          options.shard);
    }
    return check_stdout();
  }
  try {
    // A report made anew does not make the run newer: where samples were missing, resume() emptied the field.
    if (eval::Manifest manifest = folder.manifest(); manifest.finished_utc.empty()) {
      manifest.finished_utc = eval::utc_now();
      folder.write_manifest(manifest);
    }
    report();
  } catch (const eval::FolderLost&) {
    throw;
  } catch (const Interrupted&) {
    throw RunError("Interrupted. All samples are finished and kept. For the report, " + go_on + ".");
  } catch (const InputError& error) {
    throw_input_error("{} All samples are finished and kept. For the report, {}.", error.what(), go_on);
  } catch (const RunError& error) {
    throw_run_error("{} All samples are finished and kept. For the report, {}.", error.what(), go_on);
  }
}

}  // namespace tandem::cli
