// A folder in L-Eval's form with documents of our own, gone with the test.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "eval/scoring/leval.h"
#include "tests/engine/model/model_folder.h"

namespace tandem::testing {

class LEvalFolder {
 public:
  LEvalFolder() {
    for (const char* part : {"Closed-ended-tasks", "Open-ended-tasks"})
      std::filesystem::create_directories(root_.path() / part);
  }
  const std::filesystem::path& path() const { return root_.path(); }
  void write(const std::string& name, const std::string& text, bool append = false) const {
    std::ofstream(root_.path() / name, append ? std::ios::app : std::ios::out) << text;
  }
  /// Lines of a data set: documents, each with all questions.
  void add(const std::string& task, const std::string& evaluation, const std::vector<std::string>& documents,
           const std::vector<std::string>& questions, const std::vector<std::string>& answers,
           bool append = false) const {
    std::string text;
    for (const std::string& document : documents) {
      const nlohmann::json json = {{"input", document},
                                   {"instructions", questions},
                                   {"outputs", answers},
                                   {"source", "made up here"},
                                   {"evaluation", evaluation}};
      text += json.dump() + "\n";
    }
    const bool closed = eval::leval_dataset(task).closed;
    write(std::string(closed ? "Closed-ended-tasks/" : "Open-ended-tasks/") + task + ".jsonl", text, append);
  }

 private:
  TemporaryFolder root_;
};

}  // namespace tandem::testing
