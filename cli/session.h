// What bench, compare, eval and generate share: the options that choose a model, a device and its memory, and making
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "cli/command.h"
#include "engine/common/version.h"
#include "engine/device/device.h"
#include "engine/kernels/thread_pool.h"
#include "engine/model/model.h"
#include "engine/model/weight_files.h"
#include "engine/runtime/engine.h"
#include "eval/run/dataset_command.h"

namespace tandem::cli {

inline constexpr const char* kModelHelp =
    "embedded (also called deep), seed, tiny, or the folder of a Hugging Face model";

inline constexpr std::uint32_t kPrefillChunk = 512;  // tokens

struct SessionOptions {
  std::string model = "embedded";
  std::string device = "sim";
  std::string hardware = "fluxion-a100";
  std::string device_kv = "4G", host_kv = "8G";
  unsigned threads = 0;
  std::optional<std::uint32_t> prefill_chunk;  // none given: kPrefillChunk
  std::string precision = "auto";
  std::string weights = "auto";
  double rank_timeout = 60;  // seconds
};

/// What a command's help offers for --model. Of `trained` ones is asked by check_trained().
enum class Models : std::uint8_t { any, trained };

/// --model, --weights, --threads, --device-kv, --host-kv, --prefill-chunk, --precision.
void add_model_options(Command command, SessionOptions& options, Models models = Models::any);
/// These, and which device and hardware.
void add_session_options(Command command, SessionOptions& options, Models models = Models::any);

/// --model, --threads and --device of commands that tell no times: which model, and where it computes.
void add_compute_options(Command command, SessionOptions& options);

/// --chat, of which `help` says what it does, --chat-format, and where the command `thinks` --no-thinking.
void add_chat_options(Command command, eval::ChatChoice& chat, const char* help, bool thinks);

/// Whether --model names the embedded model, by that name or by its own.
bool is_embedded(const std::string& model);

/// Tokens per prefill chunk; InputError for an impossible number.
std::uint32_t chunk_of(const SessionOptions& options);

/// InputError where this process may not use so many.
void check_threads(unsigned threads);

/// The options that results depend on, model aside, as they can be typed again: " --device sim --hw ...".
std::string session_arguments(const SessionOptions& options);

/// What engines are made from; all of it outlives them.
struct Session {
  Model model;
  std::shared_ptr<WeightFiles> weights;  // the model's, as they were when it was loaded
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Device> device;
  EngineOptions engine;
  std::string hardware_hash;        // of the profile that is simulated; empty: none is
  double load_seconds = 0;          // of the weights
  std::size_t huge_page_bytes = 0;  // of the process, once they were loaded
};

/// The fields of a file, of whatever type, that name the program and the model behind it.
template <class Source>
void name_origin(const Session& session, Source& source) {
  if constexpr (requires { source.programs; }) {
    source.programs = {{std::string(version()), std::string(git_commit())}};
  } else {
    source.tandem_version = version();
    source.git_commit = git_commit();
  }
  source.model = session.model.name;
  source.weights_hash = session.model.weights_hash;
  source.tokenizer_hash = session.model.tokenizer->hash();
}

/// Says on stderr where methods leave to their defaults what has been trained for the embedded model.
void say_hints(std::span<const std::string> methods, const SessionOptions& options);

/// InputError for `synthetic:` models, whose random weights nothing can be scored with; they are not made for that.
void check_trained(const SessionOptions& options);

/// Where the value of --weights puts them. Unless `quiet` a progress line appears when copying takes more than two
/// seconds.
WeightPlace place_of_weights(const std::string& option, bool quiet);

/// InputError for unknown names and impossible sizes. `with_tokenizer = false`: for work on token ids alone.
Session open_session(const SessionOptions& options, bool quiet, bool with_tokenizer = true);

/// Writes conversations in the chosen format, or by the template of the model's folder. The token that ends its answers
/// becomes a stop token of the model. InputError for an unknown name, for a folder without a template, and for
/// --no-thinking where that changes nothing.
ChatWriter choose_chat_format(const eval::ChatChoice& chat, Model& model);

/// InputError where the KV of `batch` prompts of `tokens` tokens takes more than this machine's free memory, which is
/// the simulated devices' memory, too. A GPU has its own.
void check_free_memory(const Session& session, std::uint32_t batch, std::uint32_t tokens);

/// An engine for one prompt at a time that becomes `tokens` long, all of it on the device; forks of it share its pages.
void keep_one_prompt(Session& session, std::uint32_t tokens, DType precision);

}  // namespace tandem::cli
