#include "cli/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/core.h>
#include <span>

#include "cli/output.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "engine/common/cgroup.h"
#include "engine/common/error.h"
#include "engine/common/huge_memory.h"
#include "engine/common/interrupt.h"
#include "engine/device/cuda_device.h"
#include "engine/device/emu_device.h"
#include "engine/device/profile.h"
#include "engine/device/sim_device.h"
#include "engine/model/folder_template.h"
#include "engine/model/presets.h"
#include "engine/model/safetensors.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "eval/run/option_values.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kThreadsHelp =
    "CPU threads for kernels; 0: all that this process may use, pinned unless TANDEM_PIN=0; with --device cuda all but "
    "one, which the thread that launches has";

DType parse_precision(const std::string& name, const Model& model) {
  if (name == "auto") return model.weights.layers.at(0).q.type;
  for (const DType type : {DType::f32, DType::f16, DType::bf16})
    if (name == to_string(type)) return type;
  const std::vector<std::string> known = {"auto", "bf16", "f16", "f32"};
  throw_input_error("--precision is '{}'; it can be {}.{}", name, join_names(known), did_you_mean(name, known));
}

ChatWriter writer_of(const std::string& given, const Model& model) {
  if (!given.empty()) return chat_format_by_name(given);
  std::shared_ptr<FolderTemplate> own = FolderTemplate::open(model.folder);
  if (own == nullptr)
    throw_input_error(
        "Model '{}' has no chat template, so it may not be an instruct model; choose a format with --chat-format: {}.",
        model.name, join_names(chat_format_names()));
  return ChatWriter(std::move(own));
}

}  // namespace

std::uint32_t chunk_of(const SessionOptions& options) {
  const std::uint32_t chunk = options.prefill_chunk.value_or(kPrefillChunk);
  eval::check_range("--prefill-chunk", chunk, 1, 65536, " tokens");
  return chunk;
}

void check_threads(unsigned threads) {
  if (threads > usable_threads())
    throw_input_error("--threads is {}: this process may use {}.", threads, usable_threads());
}

void add_session_options(Command command, SessionOptions& options, Models models) {
  add_model_options(command, options, models);
  command.option("--device", options.device,
                 "sim: virtual time from a hardware profile; emu: one thread per lane, real time on this CPU; cuda: "
                 "real time on a GPU");
  command.option("--hw", options.hardware, "Hardware profile of --device sim (`tandem info` lists them)");
  command.option("--rank-timeout", options.rank_timeout,
                 "Seconds that asyncspade waits for the process that holds its cache before the run ends");
}

void add_model_options(Command command, SessionOptions& options, Models models) {
  command.option("--model", options.model,
                 std::string(kModelHelp) + (models == Models::any ? ", or synthetic:<preset>" : ""));
  command.option("--weights", options.weights,
                 "auto: copied into huge pages, which are read faster, where that takes no more than half of the free "
                 "memory; copy; map: read from the model's files");
  command.option("--threads", options.threads, kThreadsHelp);
  command.option("--device-kv", options.device_kv, "Budget of the KV store on the device");
  command.option("--host-kv", options.host_kv, "Budget of the KV store in host memory");
  command.option("--prefill-chunk", options.prefill_chunk, fmt::format("Tokens per prefill chunk [{}]", kPrefillChunk));
  command.option(
      "--precision", options.precision,
      "f32; f16: K and V in f16; bf16: K and V in bf16, and prefill rounds activations to bf16; auto: as the "
      "weights are stored");
}

void add_compute_options(Command command, SessionOptions& options) {
  command.option("--model", options.model, kModelHelp);
  command.option("--threads", options.threads, kThreadsHelp);
  command.option(
      "--device", options.device,
      "Where the model computes: sim and emu, on the CPU; cuda, on a GPU, where products with bf16 weights read bf16");
}

void add_chat_options(Command command, eval::ChatChoice& chat, const char* help, bool thinks) {
  command.flag("--chat", chat.chat, help);
  command.option("--chat-format", chat.format,
                 "With --chat: " + join_names(chat_format_names()) + " [the chat template of the model's folder]");
  if (thinks)
    command.flag("--no-thinking", chat.no_thinking,
                 "With --chat: answer without reasoning first (Qwen3 and others that can)");
}

std::string session_arguments(const SessionOptions& o) {
  const bool simulated = o.device == "sim";  // virtual time is the same with any number of threads
  return fmt::format(" --device {}{}{} --device-kv {} --host-kv {}{} --precision {}", o.device,
                     simulated ? " --hw " + eval::shell_word(o.hardware) : "",
                     simulated || o.threads == 0 ? "" : fmt::format(" --threads {}", o.threads),
                     eval::shell_word(o.device_kv), eval::shell_word(o.host_kv),
                     o.prefill_chunk ? fmt::format(" --prefill-chunk {}", *o.prefill_chunk) : "", o.precision);
}

bool is_embedded(const std::string& model) {
  return model == "embedded" || model == kEmbeddedModel;
}

void say_hints(std::span<const std::string> methods, const SessionOptions& options) {
  for (const std::string& spec : methods) {
    const std::string hint = is_embedded(options.model) ? hint_for_embedded(spec) : "";
    if (!hint.empty()) say(hint);
  }
}

void check_trained(const SessionOptions& options) {
  if (!options.model.starts_with(kSyntheticPrefix)) return;
  preset_config(options.model.substr(kSyntheticPrefix.size()));  // a name that is mistyped is the first mistake
  throw_input_error("Model '{}' has random weights, so nothing can be scored with it: give a trained model.",
                    options.model);
}

WeightPlace place_of_weights(const std::string& option, bool quiet) {
  static const std::vector<std::pair<std::string, WeightPlace::In>> kPlaces = {
      {"auto", WeightPlace::In::either}, {"copy", WeightPlace::In::memory}, {"map", WeightPlace::In::file}};
  for (const auto& [name, in] : kPlaces) {
    if (option != name) continue;
    return {in, [quiet, progress = std::shared_ptr<Progress>(), start = std::chrono::steady_clock::now()](
                    std::uint64_t done, std::uint64_t all) mutable {
              if (!progress && std::chrono::steady_clock::now() - start > std::chrono::seconds(2))
                progress = std::make_shared<Progress>("weights, MB", quiet);
              if (progress) progress->update(done / 1000000, all / 1000000);
            }};
  }
  throw_input_error("--weights is '{}': give auto, copy or map.", option);
}

Session open_session(const SessionOptions& options, bool quiet, bool with_tokenizer) {
  Session session;
  session.engine.kv.device_bytes = eval::parse_size(options.device_kv, "--device-kv");
  session.engine.kv.host_bytes = eval::parse_size(options.host_kv, "--host-kv");
  session.engine.prefill_chunk = chunk_of(options);
  session.engine.interrupted = interrupted;
  expect(options.rank_timeout >= 0.001 && options.rank_timeout <= 86400, "--rank-timeout", options.rank_timeout,
         "0.001 to 86400 seconds");
  session.engine.peer_patience = std::chrono::milliseconds(std::llround(options.rank_timeout * 1000));
  if (options.threads > usable_threads()) {
    throw_input_error(
        "--threads is {}, but this process may use {} CPUs: more threads than CPUs only get in each other's way.",
        options.threads, usable_threads());
  }
  if ((options.device == "emu" || options.device == "cuda") && options.hardware != SessionOptions().hardware)
    throw_input_error("--hw is '{}', but --device {} takes real time on this machine: give one of them.",
                      options.hardware, options.device);
  unsigned threads = options.threads, spare = 0;
  if (options.device == "sim") {
    HardwareProfile profile = load_profile(options.hardware);
    session.engine.policy_ns = profile.control.policy_ns;
    session.engine.layer_ns = profile.device.layer_ns;
    session.engine.control_layer_ns = profile.control.layer_ns;
    const std::string content = profile_to_json(profile);
    session.hardware_hash = hash_digits(content);
    session.device = make_sim_device(std::move(profile));
  } else if (options.device == "emu") {
    session.device =
        make_emu_device({.host_worker_threads = options.threads == 0 ? usable_threads() : options.threads});
  } else if (options.device == "cuda") {
    // The control thread looks at the device and takes tasks: with as many workers as CPUs one of them would wait for
    // it.
    spare = 1;
    if (threads == 0) threads = std::max(spare + 1, usable_threads()) - spare;
    session.device = make_cuda_device({.host_worker_threads = threads});
  } else {
    const std::vector<std::string> known = {"sim", "emu", "cuda"};
    throw_input_error("There is no device '{}'.{} There are {}.", options.device, did_you_mean(options.device, known),
                      join_names(known));
  }
  session.engine.peer = other_rank();
  session.pool = std::make_unique<ThreadPool>(threads, spare);
  const auto began = std::chrono::steady_clock::now();
  session.model = load_model(options.model, with_tokenizer, place_of_weights(options.weights, quiet));
  session.load_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  session.huge_page_bytes = bytes_in_huge_pages();
  session.weights = std::make_shared<WeightFiles>(session.model);
  session.engine.precision = parse_precision(options.precision, session.model);
  return session;
}

ChatWriter choose_chat_format(const eval::ChatChoice& chat, Model& model) {
  ChatWriter writer = writer_of(chat.format, model);
  const ChatMessage question{"user", "Why?"};
  if (chat.no_thinking && writer.write({&question, 1}) == writer.write({&question, 1}, {.thinking = false}))
    throw_input_error("--no-thinking changes nothing for model '{}': its chat format has no reasoning to close.",
                      model.name);
  std::vector<std::int32_t>& stops = model.config.stop_tokens;
  const std::int32_t end = writer.end_of_answer(*model.tokenizer);
  if (end >= 0 && std::find(stops.begin(), stops.end(), end) == stops.end()) stops.push_back(end);
  return writer;
}

void check_free_memory(const Session& session, std::uint32_t batch, std::uint32_t tokens) {
  if (session.device->is_gpu()) return;
  const std::size_t needed = batch * eval::prompt_kv_bytes(session.engine, session.model, tokens);
  const std::size_t room = available_memory();
  if (needed <= room) return;
  throw_input_error(
      "The KV of {} of {} tokens takes {} bytes, and this machine has {} bytes of free memory: ask for fewer sequences "
      "or shorter ones.",
      eval::counted(batch, "sequence"), tokens, needed, room);
}

void keep_one_prompt(Session& session, std::uint32_t tokens, DType precision) {
  constexpr std::uint32_t kSpare = 4;  // pages: forks have last ones of their own
  const ModelConfig& c = session.model.config;
  const std::size_t page = c.layers * KvShape{c.layers, c.kv_heads, c.head_dim, precision}.slot_bytes();
  session.engine.kv.device_bytes = (blocks_for(tokens) + kSpare) * page;
  session.engine.kv.host_bytes = page;  // the least a store takes
  session.engine.max_batch = 1;
  session.engine.precision = precision;
  check_free_memory(session, 1, tokens);
}

}  // namespace tandem::cli
