// tandem eval <dataset>: methods side by side on a dataset (eval/datasets.h).
#include "cli/eval.h"

#include <fmt/ranges.h>
#include <variant>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/output.h"
#include "engine/common/error.h"
#include "eval/datasets.h"
#include "eval/report/answer.h"
#include "eval/report/run_folder.h"
#include "eval/report/table.h"
#include "eval/run/decoded.h"
#include "eval/run/file_dataset.h"
#include "eval/run/option_values.h"
#include "eval/tables/tables.h"
#include "methods/options.h"
#include "methods/registry.h"

namespace tandem::cli {
namespace {

/// Most lines of the answer: with where the files are, and what scripts/quickstart.sh adds, they fit on a screen of 40.
constexpr std::size_t kAnswerLines = 33;

/// "runs/a: report.md, summary.json", in lines of the terminal's width; the folder is not broken, so that it can be
/// copied.
std::string left_there(const eval::RunFolder& folder, const std::string& names) {
  const std::string path = folder.path().string();
  if (eval::text_columns(path + names) + 2 <= eval::terminal_width()) return path + ": " + names;
  return path + ":\n" + eval::wrap(names, eval::terminal_width());
}

/// A report as it grows: its files are in the folder, and the answer on the terminal, before more of it is made.
class ShownReport {
 public:
  ShownReport(const RunOptions& run, eval::RunFolder& folder, eval::RunReport report)
      : run_(run), folder_(folder), report_(std::move(report)) {
    if (run_.json) {
      print("{}", report_.files.front().second);  // summary.json
    } else {
      print("{}", eval::answer_text(eval::answer_of(report_.summary), eval::terminal_width(), kAnswerLines));
    }
    write();
  }

  void add(const EvalHooks::AddToReport& part) {
    part(folder_, report_);
    write();
  }

  void finish() {
    std::size_t drawn = 0;
    std::string names = "report.md";
    for (const eval::ReportPlot& plot : report_.plots) {
      if (!draw(plot.script, folder_.path(), plot.name, !run_.no_plot)) break;
      ++drawn;
      names += fmt::format(", {}.png", plot.name);
    }
    if (drawn > 0) folder_.write("report.md", report_.text(/*markdown=*/true, drawn));
    if (!run_.no_plot && write_page()) names += fmt::format(", {}", eval::kPage);
    for (const auto& [name, content] : report_.files) names += ", " + name;
    names += fmt::format(", {}, {}, timings.jsonl", eval::kTextReport, report_.samples_file);
    if (!run_.json)
      print("\nAll tables: tandem report {}\n{}\n", eval::shell_word(folder_.path().string()),
            left_there(folder_, names));
    check_stdout();
  }

 private:
  /// Whether there is a page: where none can be made, standard error says why.
  bool write_page() {
    const std::string path = folder_.path().string();
    const std::vector<eval::PageFolder> run = {{path, path, report_.summary.complete}};
    std::string page;
    try {
      page = eval::tables_page(eval::page_title(report_.summary.manifest), "", run,
                               fmt::format("Made by {}.", program_text()));
    } catch (const InputError& error) {
      say(error.what());
      return false;
    } catch (const RunError& error) {
      say(error.what());
      return false;
    }
    folder_.write(eval::kPage, page);
    return true;
  }

  void write() {
    for (; written_ < report_.files.size(); ++written_)
      folder_.write(report_.files[written_].first, report_.files[written_].second);
    folder_.write("report.md", report_.text(/*markdown=*/true));
    const eval::FixedWidth fixed;
    folder_.write(eval::kTextReport, report_.text(/*markdown=*/false));
    check_stdout();
  }

  const RunOptions& run_;
  eval::RunFolder& folder_;
  eval::RunReport report_;
  std::size_t written_ = 0;  // of its files
};

std::string chat_arguments(const eval::ChatChoice& chat) {
  return fmt::format("{}{}{}", chat.chat ? " --chat" : "", chat.format.empty() ? "" : " --chat-format " + chat.format,
                     chat.no_thinking ? " --no-thinking" : "");
}

void check_chat(const eval::DatasetCommand& dataset) {
  const auto& chat = dataset.chat;
  if (!chat || chat->chat || (!chat->no_thinking && chat->format.empty())) return;
  throw_input_error("{} to prompts in a chat template: add --chat.",
                    dataset.thinks() ? "--chat-format and --no-thinking belong" : "--chat-format belongs");
}

}  // namespace

void add_dataset_options(Command command, const std::vector<eval::DatasetOption>& options) {
  for (const eval::DatasetOption& option : options)
    std::visit([&](auto* value) { command.option(option.name, *value, option.help); }, option.value);
}

void add_eval_options(Command command, EvalCommand& eval) {
  add_dataset_options(command, eval.dataset->options());
  command.option("--batch", eval.batch, "Sequences decoded together");
  if (auto& chat = eval.dataset->chat)
    add_chat_options(command, *chat, "Put a chat template around prompts", eval.dataset->thinks());
}

PreparedEval prepare_eval(EvalCommand& eval, const Command& command, std::vector<std::string> methods) {
  eval::check_range("--batch", eval.batch, 1, 256);
  check_chat(*eval.dataset);
  std::unique_ptr<Progress> line;
  std::string shown;
  const eval::DatasetHost host = {
      [&](const char* option) { return command.given(option); },
      [](const std::string& file, const std::string& what) { return read_text(file, what); },
      [&](const char* doing, std::uint64_t done, std::uint64_t total) {
        if (shown != doing) line = std::make_unique<Progress>(shown = doing, eval.run.quiet);
        line->update(done, total);
      }};
  check_run_options(eval.run, eval.session);
  check_trained(eval.session);
  eval.dataset->check(host);
  eval::method_entries(methods);  // wrong names, before files are read
  PreparedEval made{std::make_unique<Session>(open_session(eval.session, eval.run.quiet)), nullptr, {}};
  Session& session = *made.session;
  eval::DatasetSetting setting{session.model, std::nullopt, host};
  if (const auto& chat = eval.dataset->chat; chat && chat->chat)
    setting.template_of = choose_chat_format(*chat, session.model);
  std::uint32_t longest = 0;
  try {
    made.dataset = eval.dataset->open(setting);
    longest = made.dataset->longest_prompt();
  } catch (const Interrupted&) {
    line.reset();
    throw RunError("Interrupted before the first sample; nothing was written.");
  }
  line.reset();
  keep_what_methods_need(session.engine, methods, session.model);
  eval::check_device_room(session.engine, session.model, eval.batch, longest, eval.entry.lengths);
  check_free_memory(session, eval.batch, longest);
  for (const std::string& note : eval.dataset->notes(session.model)) say(note);
  if (!eval.dataset->chose_tasks()) {
    const std::string note =
        eval::unread_note(eval.entry.data_option, eval.dataset->data, eval.dataset->unread(), eval.entry.file_rule);
    if (!note.empty()) say(note);
  }
  say_hints(methods, eval.session);
  made.options.methods = std::move(methods);
  made.options.batch = eval.batch;
  made.options.engine = session.engine;
  // These may refuse an option, so they come before the folder is made.
  made.options.shard = shard_of(eval.run);
  made.options.engine.prefix_cache = prefix_cache_of(eval.run, session);
  if (!eval.run.prefix_cache.empty() && eval::engine_options_of(made.options, session.model).column_sums)
    say("--prefix-cache: a method of this run (such as h2o) needs sums over all queries of a prompt, so only whole "
        "prompts are reused.");
  return made;
}

std::string recorded_command(const EvalCommand& eval, const std::string& name, const std::vector<std::string>& methods,
                             const eval::Dataset& dataset, const std::string& more) {
  const bool own_data = eval.entry.data_help != nullptr;
  return fmt::format("tandem {}{} --model {} --methods {}{}{}{} --batch {}{}", name,
                     own_data ? " --data " + eval::shell_word(eval.dataset->data) : "",
                     is_embedded(eval.session.model) ? "embedded" : eval::shell_word(eval.session.model),
                     eval::shell_word(fmt::format("{}", fmt::join(methods, ","))), more, dataset.arguments(),
                     eval.dataset->chat ? chat_arguments(*eval.dataset->chat) : "", eval.batch,
                     session_arguments(eval.session));
}

void answer(EvalCommand& eval, PreparedEval& prepared, const char* what, const std::string& command,
            const EvalHooks& hooks) {
  auto& [held, dataset, options] = prepared;
  Session& session = *held;
  eval::Manifest manifest;
  manifest.command = command;
  describe_session(eval.session, session, manifest);
  dataset->fill_manifest(options.methods, manifest);
  eval::RunFolder folder = open_run(eval.run, what, session, manifest);
  Progress progress(eval.entry.doing, eval.run.quiet);
  options.progress = progress.hook();
  const auto decode = [&] {
    eval::run_dataset(*dataset, options, session.model, *session.device, *session.pool, folder);
  };
  fill_run(
      eval.run, folder, session, progress, [&] { hooks.around ? hooks.around(folder, options, decode) : decode(); },
      [&] {
        eval::RunReport report = dataset->report(folder);
        for (const EvalHooks::AddToReport& part : hooks.add) part(folder, report);
        ShownReport shown(eval.run, folder, std::move(report));
        for (const EvalHooks::AddToReport& part : hooks.add_later) shown.add(part);
        shown.finish();
      });
}

namespace {

constexpr const char* kEvalFooter = R"(
Examples:
  tandem eval perplexity --text book.txt                  how much a method loses when every token goes through it
  tandem eval longbench --data LongBench --model ~/llama --chat    questions, summaries and code, as published
  tandem eval longproc --data LongProc --model ~/llama --chat      long answers that a procedure determines
  tandem eval leval --data LEval-data --model ~/llama --chat       exams, questions and summaries, as published
  tandem eval reasoning --data reasoning --model ~/qwen3 --chat    Pass@1 on AIME, MATH-500, GPQA beside FLOPs
  tandem eval needle --lengths 1K,2K,4K                   where in a context methods still find a needle
  tandem eval minerva_math500 --data reasoning            as `tandem eval reasoning --tasks math500`

In place of the dataset, names that lm-evaluation-harness has for tasks of RULER, LongBench, AIME, MATH-500, GPQA and
GSM8K are understood.
Prompts and scores are those that each dataset's help describes.)";

void add_dataset(Command eval, const eval::DatasetEntry& entry) {
  Command command = eval.subcommand(entry.name, entry.summary, entry.footer);
  auto asked = std::make_shared<EvalCommand>(entry);
  if (entry.data_help != nullptr) command.required(entry.data_option, asked->dataset->data, entry.data_help);
  command.option("--methods", asked->methods, kMethodsHelp);
  add_eval_options(command, *asked);
  add_run_options(command, asked->run, entry.name);
  add_session_options(command, asked->session, Models::trained);
  command.callback([asked, command] {
    settle_shard(asked->run);
    const std::vector<std::string> methods = split_method_list(asked->methods);
    PreparedEval prepared = prepare_eval(*asked, command, methods);
    const char* name = asked->entry.name;
    answer(*asked, prepared, name, recorded_command(*asked, std::string("eval ") + name, methods, *prepared.dataset));
  });
}

}  // namespace

void add_eval(Command app) {
  Command command = app.group(
      "eval", "Methods on a dataset: RULER, LongBench, L-Eval, LongProc, reasoning, needles, perplexity", kEvalFooter);
  add_ruler(command);
  for (const eval::DatasetEntry& entry : eval::datasets()) add_dataset(command, entry);
}

}  // namespace tandem::cli
