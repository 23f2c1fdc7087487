// `tandem eval needle`.
#include "engine/common/error.h"
#include "eval/datasets.h"
#include "eval/needle/needle.h"
#include "eval/run/option_values.h"

namespace tandem::eval {
namespace {

class NeedleCommand final : public DatasetCommand {
 public:
  NeedleCommand() {
    what_.samples = 5;
    what_.seed = 42;
  }

  std::vector<DatasetOption> options() override {
    return {{"--lengths", &lengths_, "Context lengths in tokens, answer included"},
            {"--depths", &depths_, "Per cent of the haystack before the needle"},
            {"--task", &what_.task,
             "What is hidden in what: a task of RULER with one needle (niah_single_1 to 3, niah_multikey_1 to 3)"},
            {"--ruler-essays", &what_.text_files.essays,
             "Text around the needle: {\"text\": ...} in a .json, or plain text (default: invented prose)"},
            {"--samples", &what_.samples, "Samples of each depth and length"},
            {"--seed", &what_.seed, "Seed of the samples"}};
  }

  void check(const DatasetHost&) override {
    check_range("--samples", what_.samples, 1, 100000);
    find_one_needle_task(what_.task);
    for (const std::string& depth : split_list(depths_, "--depths"))
      what_.depths.push_back(static_cast<std::uint32_t>(parse_count(depth, "--depths", 0, 100)));
    what_.lengths = parse_lengths(lengths_, "--lengths");
    if (!what_.text_files.essays.empty()) check_hidden_in_prose(what_.task);
    what_.texts = read_ruler_texts(what_.text_files, {what_.task});
  }

  std::unique_ptr<Dataset> open(const DatasetSetting& with) override {
    return std::make_unique<Needle>(what_, with.model);
  }

 private:
  std::string lengths_ = "512,1K,2K", depths_ = "0,10,20,30,40,50,60,70,80,90,100";
  NeedleOptions what_;
};

}  // namespace

DatasetEntry needle_entry() {
  return {.name = "needle",
          .summary = "Recall of a needle by its depth and the context's length, as a map",
          .doing = "searching",
          .methods = "full,streaming,quest:budget=512,hgca,scoutattention:budget=512",
          .data_help = nullptr,
          .lengths = "--lengths",
          .footer = R"(
Examples:
  tandem eval needle                                     five methods, depths 0 to 100 %, embedded model
  tandem eval needle --methods full,quest:budget=256,scoutattention:budget=256 --lengths 1K,2K,4K --samples 10
  tandem eval needle --model ~/models/Llama-3.1-8B --lengths 8K,32K,128K --depths 0,25,50,75,100
  tandem eval needle --task niah_multikey_1 --ruler-essays essays.txt --out runs/needle
  tandem eval needle --task niah_multikey_1 --ruler-essays essays.txt --out runs/needle --resume    goes on after ^C

One needle, a key and its number, stands behind --depths per cent of the haystack, and the question comes last; needles,
texts and scores are those of RULER's embedded tasks (`tandem compare`), where depths are drawn. Each prompt is prefilled once
and decoded with every method. The first method is the baseline. full-offload and full-host lose nothing: their maps are
full's, to the token. The run folder gets what `tandem compare` writes, plot.png being a map for each method.)",
          .make = [] { return std::unique_ptr<DatasetCommand>(std::make_unique<NeedleCommand>()); }};
}

}  // namespace tandem::eval
