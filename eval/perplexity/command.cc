// `tandem eval perplexity`.
#include <fmt/core.h>

#include "eval/datasets.h"
#include "eval/perplexity/perplexity.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

constexpr std::uint64_t kProseSeed = 20260101;

class PerplexityCommand final : public DatasetCommand {
 public:
  std::vector<DatasetOption> options() override {
    return {{"--text", &what_.text_file, "A UTF-8 file (default: invented prose)"},
            {"--context", &context_, "Tokens of a window before the scored ones"},
            {"--new", &scored_, "Tokens of a window that are scored"},
            {"--windows", &what_.windows, "Windows of the text"}};
  }

  void check(const DatasetHost& host) override {
    what_.context = parse_one_length(context_, "--context");
    what_.scored = parse_one_length(scored_, "--new");
    check_range("--windows", what_.windows, 1, 100000);
    if (what_.text_file.empty()) {
      what_.seed = kProseSeed;
    } else {
      what_.text = host.read_text(what_.text_file, fmt::format("--text '{}'", what_.text_file));
    }
  }

  std::unique_ptr<Dataset> open(const DatasetSetting& with) override {
    return std::make_unique<Perplexity>(what_, with.model);
  }

 private:
  std::string context_ = "1K", scored_ = "256";
  PerplexityOptions what_;
};

}  // namespace

DatasetEntry perplexity_entry() {
  return {.name = "perplexity",
          .summary = "Perplexity of a text when every token goes through a method",
          .doing = "scoring",
          .methods = "full,streaming,hybrid-fixed,hgca",
          .data_help = nullptr,
          .lengths = "--context",
          .batch = 4,
          .footer = R"(
Examples:
  tandem eval perplexity --methods full,streaming,hgca:beta=0.5
  tandem eval perplexity --text book.txt --context 4K --new 1K --windows 8 --methods full,hybrid-fixed:budget=0.05
  tandem eval perplexity --text book.txt --out runs/book            a folder of your own
  tandem eval perplexity --text book.txt --out runs/book --resume   goes on where ^C stopped it, with the same options

A window's context is prefilled with full attention; each further token is fed and scored through the method. The first
method is the baseline; by default there are fewer methods than in compare, since every scored token is a decode step of
every method. Without --text: invented prose, as in RULER's embedded tasks. The run folder gets manifest.json,
windows.jsonl (each window's loss, also by position; the same bytes in every run on the same instruction set),
timings.jsonl, summary.json, report.md and plot.png.)",
          .make = [] { return std::unique_ptr<DatasetCommand>(std::make_unique<PerplexityCommand>()); }};
}

}  // namespace tandem::eval
