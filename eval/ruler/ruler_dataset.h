// RULER as a dataset (eval/run/dataset.h): samples of the embedded source, with texts of files where they are given, or
// those of upstream's own files. Protocol ids are those of eval/ruler_tasks/protocol.h.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "eval/ruler_tasks/official.h"
#include "eval/ruler_tasks/texts.h"
#include "eval/run/dataset_command.h"
#include "eval/scoring/string_match.h"

namespace tandem::eval {

struct RulerOptions {
  std::shared_ptr<const OfficialRuler> official;  // samples from files; else from the embedded source
  RulerTexts texts;                               // of the embedded source, where they are from files
  std::vector<std::string> tasks;  // RULER task names; with `official` those that it has read, as `lengths`
  std::vector<std::uint32_t> lengths;
  std::uint32_t samples = 0;  // per task and length; with `official` no more than every file has
  std::uint64_t seed = 0;
  std::string data_file = {};  // of `official`, and of `texts`: as they can be typed again
  RulerFiles text_files = {};
  std::string needle = {};  // a task with one needle, of which `tasks` are names of depths; empty: they are RULER's
  std::map<std::string, std::uint32_t> percents = {};  // depths by task
};

class Ruler : public Dataset {
 public:
  /// The model must outlive this. Throws InputError for lengths that the model has no positions for, or that a task
  /// does not fit into.
  Ruler(RulerOptions options, const Model& model);

  std::string name() const override { return "ruler"; }
  std::vector<std::string> tasks() const override { return options_.tasks; }
  std::vector<std::uint32_t> lengths() const override { return options_.lengths; }
  std::uint32_t samples_of(const std::string&) const override { return options_.samples; }
  std::uint64_t seed() const override { return options_.seed; }
  std::string protocol_id(const Manifest& manifest) const override;
  std::string arguments() const override;
  DatasetSample sample(const std::string& task, std::uint32_t length, std::uint32_t index) const override;
  std::uint32_t longest_prompt() const override { return longest_prompt_; }
  std::string prediction(std::string text) const override { return postprocess_prediction(text); }
  Score score(const DatasetSample& sample, const std::string& prediction) const override;
  /// With FLOPs by the published formulas, also as flops.json, where a method has one.
  RunReport report(const RunFolder& folder) const override;

  std::vector<std::int32_t> encode(std::string_view prompt) const;

 protected:
  std::string lengths_text() const;  // "4K,1000"

  const RulerOptions options_;

 private:
  std::string ruler_task_of(const std::string& task) const;
  std::optional<std::uint32_t> depth_of(const std::string& task) const;

  const Model& model_;
  std::uint32_t longest_prompt_ = 0;
};

/// --ruler-essays and --ruler-qa.
std::vector<DatasetOption> ruler_file_options(RulerFiles& files);

/// `tandem compare`, which is `tandem eval ruler`. `one_length`: whether --lengths must be one.
class RulerCommand final : public DatasetCommand {
 public:
  std::vector<DatasetOption> options() override;
  void check(const DatasetHost& host) override;
  std::unique_ptr<Dataset> open(const DatasetSetting& with) override;
  std::vector<std::filesystem::path> unread() const override;
  bool chose_tasks() const override { return ruler_data_.empty() || !tasks_.empty(); }
  std::vector<std::string> notes(const Model& model) const override;

  bool one_length = false;

 private:
  std::string ruler_data_, tasks_, lengths_;  // empty: the embedded source, and its defaults or all that files hold
  RulerFiles texts_;
  std::optional<std::uint64_t> seed_;  // none: the default; files have their samples
  std::uint32_t samples_ = 20;
  RulerOptions what_;
};

}  // namespace tandem::eval
