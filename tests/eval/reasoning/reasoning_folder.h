// A folder of small reasoning files, gone with the test.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/model/model_folder.h"

namespace tandem::testing {

class ReasoningFolder {
 public:
  std::string path() const { return root_.path().string(); }
  std::string file(const std::string& name) const { return (root_.path() / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(root_.path() / name) << text; }
  static std::string record(const std::string& prompt, const nlohmann::json& answer) {
    return nlohmann::json{{"prompt", prompt}, {"answer", answer}, {"level", 5}}.dump() + "\n";
  }
  /// `n` problems of a task that begins as a task of the answers' kind does.
  void add(const std::string& task, int n) const {
    std::string text;
    for (int i = 0; i < n; ++i) {
      const std::string number = std::to_string(i + 2);
      const nlohmann::json answer = task.starts_with("aime")   ? nlohmann::json(i + 2)
                                    : task.starts_with("gpqa") ? nlohmann::json("\\boxed{B}")
                                    : task.starts_with("gsm8k")
                                        ? nlohmann::json("It is " + number + ".\n#### " + number)
                                        : nlohmann::json("\\frac{1}{" + number + "}");
      text += record("Tom had " + number + " apples and went to the park with his friend.", answer);
    }
    write(task + ".jsonl", text);
  }

 private:
  TemporaryFolder root_;
};

}  // namespace tandem::testing
