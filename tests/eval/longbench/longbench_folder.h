// A folder in LongBench's form with records of our own, gone with the test.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/model/model_folder.h"

namespace tandem::testing {

class LongBenchFolder {
 public:
  LongBenchFolder() {
    std::filesystem::create_directories(root_.path() / "config");
    std::filesystem::create_directories(root_.path() / "data");
    write("config/dataset2prompt.json",
          R"({"qasper": "Read.\n\n{context}\n\nQuestion: {input}\n\nAnswer:", "trec": "Types:\n{context}\n{input}",
              "samsum": "Talk.\n\n{context}\n\n{input}", "hotpotqa": "{context} {{x}} {input}"})");
    write("config/dataset2maxlen.json", R"({"qasper": 6, "trec": 4, "samsum": 8, "hotpotqa": 5})");
  }
  const std::filesystem::path& path() const { return root_.path(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(root_.path() / name) << text; }
  /// A line of a task's file.
  static std::string record(const std::string& context, const std::string& input,
                            const std::vector<std::string>& answers, int length = 10,
                            const nlohmann::json& classes = nullptr) {
    const nlohmann::json json = {{"input", input},         {"context", context},  {"answers", answers},
                                 {"length", length},       {"dataset", "unread"}, {"language", "en"},
                                 {"all_classes", classes}, {"_id", "0"}};
    return json.dump() + "\n";
  }
  /// `n` records of a task.
  void add(const std::string& task, int n) const {
    std::string text;
    for (int i = 0; i < n; ++i) {
      text += record("The parcel " + std::to_string(i) + " is in the red barn near the mill.", "Where is it?",
                     {"the red barn"}, 3000 * (i + 1), nlohmann::json::array({"Place", "Person"}));
    }
    write("data/" + task + ".jsonl", text);
  }

 private:
  TemporaryFolder root_;
};

}  // namespace tandem::testing
