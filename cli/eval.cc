// tandem eval: measures of models and methods beside RULER. So far: perplexity.
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/parse.h"
#include "cli/progress.h"
#include "cli/session.h"
#include "engine/common/error.h"
#include "eval/perplexity/perplexity.h"
#include "eval/report/line_file.h"
#include "methods/options.h"

namespace tandem::cli {
namespace {

constexpr const char* kFooter = R"(
Examples:
  tandem eval perplexity --methods full,streaming,hgca:beta=0.5
  tandem eval perplexity --text book.txt --context 4K --new 1K --windows 8 --methods full,hybrid-fixed:budget=0.05

A window's context is prefilled with full attention; each further token is fed and scored through the method. The first
method is the baseline. Without --text: invented prose, as in RULER's embedded tasks.)";

constexpr std::uint64_t kProseSeed = 20260101;

struct PerplexityArguments {
  SessionOptions session;
  std::string methods = "full,streaming,hybrid-fixed,hgca", text, out, context = "1K", scored = "256";
  std::uint32_t windows = 32, batch = 4;
  bool force = false, quiet = false;
};

std::string read_text(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::error_code refused;
  if (!in || std::filesystem::is_directory(file, refused)) throw_input_error("--text '{}' cannot be read.", file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void perplexity(const PerplexityArguments& arguments) {
  eval::PerplexityOptions options;
  options.methods = split_method_list(arguments.methods);
  options.context = parse_one_length(arguments.context, "--context");
  options.scored = parse_one_length(arguments.scored, "--new");
  options.windows = arguments.windows;
  options.batch = arguments.batch;
  if (options.windows < 1 || options.windows > 100000)
    throw_input_error("--windows is {}: give 1 to 100000.", options.windows);
  if (options.batch < 1 || options.batch > 256) throw_input_error("--batch is {}: give 1 to 256.", options.batch);
  check_new_file(arguments.out, arguments.force);
  std::string text = arguments.text.empty() ? "" : read_text(arguments.text), name = arguments.text;
  Session session = open_session(arguments.session);
  if (session.model.synthetic)
    throw_input_error("Model '{}' has random weights: its perplexity says nothing.", session.model.name);
  if (arguments.text.empty()) {
    name = fmt::format("invented prose (seed {})", kProseSeed);
    text = eval::invented_prose(kProseSeed, std::size_t{8} * options.windows * (options.context + options.scored));
  }
  options.engine = session.engine;
  Progress progress("scoring", Progress::standard(arguments.quiet));
  options.progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
  eval::Perplexity result;
  try {
    result = eval::decode_perplexity(options, session.model, *session.device, *session.pool, text, name);
  } catch (const Interrupted&) {
    progress.finish();
    throw RunError("Interrupted; nothing was written.");
  } catch (...) {
    progress.finish();
    throw;
  }
  progress.finish();
  fmt::print("{}", eval::perplexity_text(result));
  check_stdout();
  if (arguments.out.empty()) return;
  eval::write_file(arguments.out, eval::perplexity_json(result));
  fmt::print("\n{}: every window, as JSON\n", arguments.out);
}

}  // namespace

void add_eval(CLI::App& app) {
  auto* command = app.add_subcommand("eval", "Measures beside RULER: perplexity");
  command->require_subcommand(1);
  auto* inner = command->add_subcommand("perplexity", "Perplexity of a text when every token goes through a method");
  auto arguments = std::make_shared<PerplexityArguments>();
  inner->add_option("--methods", arguments->methods, "Methods with their options; the first is the baseline")
      ->capture_default_str();
  inner->add_option("--text", arguments->text, "A UTF-8 file (default: invented prose)");
  inner->add_option("--context", arguments->context, "Tokens of a window before the scored ones")
      ->capture_default_str();
  inner->add_option("--new", arguments->scored, "Tokens of a window that are scored")->capture_default_str();
  inner->add_option("--windows", arguments->windows, "Windows of the text")->capture_default_str();
  inner->add_option("--batch", arguments->batch, "Windows decoded together")->capture_default_str();
  inner->add_option("--out", arguments->out, "A JSON file for every window's loss");
  inner->add_flag("--force", arguments->force, "Replace that file");
  inner->add_flag("--quiet", arguments->quiet, "No progress line");
  add_session_options(*inner, arguments->session);
  inner->footer(kFooter);
  inner->callback([arguments] { perplexity(*arguments); });
}

}  // namespace tandem::cli
