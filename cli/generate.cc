// tandem generate: one prompt through one method, streamed, with the step times behind it.
#include <cstdio>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include "cli/commands.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  tandem generate --prompt "Some secret numbers are written in the text below. ..."
  tandem generate --prompt-file prompt.txt --method hybrid-fixed:budget=0.1 --max-new 64

The text streams to stdout; the figures follow on stderr. Decoding is greedy. TTFT is prefill + the method's own
preparation + the first step; TPOT is the mean of the steps after it.)";

struct GenerateOptions {
  SessionOptions session;
  std::string prompt, prompt_file, method = "full";
  std::uint32_t max_new = 64;
};

std::string read_prompt(const GenerateOptions& options) {
  if (options.prompt.empty() == options.prompt_file.empty()) {
    throw_input_error("Give the prompt with either --prompt or --prompt-file.");
  }
  if (!options.prompt.empty()) return options.prompt;
  std::ifstream in(options.prompt_file, std::ios::binary);
  std::error_code refused;
  if (!in || std::filesystem::is_directory(options.prompt_file, refused))
    throw_input_error("The prompt file '{}' cannot be read.", options.prompt_file);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (text.empty()) throw_input_error("The prompt file '{}' is empty.", options.prompt_file);
  return text;
}

void print_figures(const Session& session, const Prefix& prefix, const DecodeResult& result) {
  Nanos setup = 0, first = 0, later = 0, steps = 0;
  for (const StepIdle& step : result.idle.steps) {
    if (step.step == Device::kSetupStep) {
      setup = step.window;
    } else if (step.step == 0) {
      first = step.window;
    } else {
      later += step.window;
      ++steps;
    }
  }
  const auto ms = [](Nanos ns) { return double(ns) * 1e-6; };
  fmt::print(stderr, "{}\n", session.device->clock_name());
  fmt::print(stderr, "TTFT {:.3f} ms = prefill of {} tokens {:.3f} + method's preparation {:.3f} + first step {:.3f}\n",
             ms(prefix.prefill_ns + setup + first), prefix.prompt.size() - 1, ms(prefix.prefill_ns), ms(setup),
             ms(first));
  if (steps > 0) fmt::print(stderr, "TPOT {:.3f} ms over {} steps\n", ms(later) / double(steps), steps);
  const StepIdle& all = result.idle.decode;
  if (all.window == 0) return;
  fmt::print(stderr, "device busy {:.1f} %, idle {:.1f} %", 100.0 * double(all.busy) / double(all.window),
             100.0 * double(all.idle) / double(all.window));
  const char* separator = ": ";
  for (int cause = 0; cause < kCauseCount; ++cause) {
    if (all.by_cause[cause] == 0) continue;
    fmt::print(stderr, "{}{} {:.1f} %", separator, to_string(static_cast<Cause>(cause)),
               100.0 * double(all.by_cause[cause]) / double(all.window));
    separator = ", ";
  }
  fmt::print(stderr, "\n");
}

void generate(const GenerateOptions& options) {
  if (options.max_new == 0) throw_input_error("--max-new is 0: ask for at least one token.");
  const std::string text = read_prompt(options);
  const auto method = make_method(options.method);
  Session session = open_session(options.session);
  session.engine.max_batch = 1;
  Engine engine(session.model, *session.device, *session.pool, session.engine);
  const std::vector<std::int32_t> prompt = session.model.tokenizer->encode(text, /*add_bos=*/true);
  const auto prefix = engine.prefill(prompt);
  const DecodeRequest request{prefix.get(), options.max_new};
  StreamingDecoder text_of(*session.model.tokenizer);
  DecodeOptions stream;
  stream.on_token = [&](std::size_t, std::int32_t token) {
    // A synthetic model's ids have no text: its tokenizer is another model's.
    fmt::print("{}", session.model.synthetic ? fmt::format(" {}", token) : text_of.push(token));
    std::fflush(stdout);
  };
  const DecodeResult result = engine.decode(*method, {&request, 1}, stream);
  fmt::print("{}\n", text_of.finish());
  std::fflush(stdout);
  print_figures(session, *prefix, result);
}

}  // namespace

void add_generate(CLI::App& app) {
  auto* command = app.add_subcommand("generate", "Continue one prompt with one method");
  auto options = std::make_shared<GenerateOptions>();
  command->add_option("--prompt", options->prompt, "The prompt");
  command->add_option("--prompt-file", options->prompt_file, "A file with the prompt");
  command->add_option("--method", options->method, "Method with its options (`tandem methods`)")->capture_default_str();
  command->add_option("--max-new", options->max_new, "Tokens to generate at most")->capture_default_str();
  add_session_options(*command, options->session);
  command->footer(kFooter);
  command->callback([options] { generate(*options); });
}

}  // namespace tandem::cli
