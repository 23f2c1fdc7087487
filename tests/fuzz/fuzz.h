// A small fuzzer of our own, since g++ has no libFuzzer: valid seeds are damaged at random (bytes, splices, cuts,
// tokens of JSON), and the reader must either accept the result or throw InputError. Everything else ends the process:
// another exception, a crash, a sanitizer's report. Deterministic: the seed and the run's number give the input.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace tandem::fuzz {

/// What one kind of file is read by.
struct Format {
  std::string name;
  std::vector<std::string> seeds;                         // valid inputs
  std::function<void(const std::string& input)> consume;  // may throw InputError
};

/// A reader with the arguments behind its name: --runs N (default 2000), or --seconds S, of all formats in turns;
/// --seed N;
/// --format NAME for that one alone; --input FILE, of that format, is all that is consumed.
int run(int argc, char** argv, const std::vector<Format>& formats);

// The readers, each with its formats, in a file of its name.
int fuzz_config(int argc, char** argv);
int fuzz_safetensors(int argc, char** argv);
int fuzz_tokenizer(int argc, char** argv);
int fuzz_chat_templates(int argc, char** argv);
int fuzz_method_files(int argc, char** argv);
int fuzz_ruler_files(int argc, char** argv);
int fuzz_question_sets(int argc, char** argv);
int fuzz_answers(int argc, char** argv);
int fuzz_run_folder(int argc, char** argv);
int fuzz_results(int argc, char** argv);
int fuzz_probe_reports(int argc, char** argv);

/// A file in memory by name, for readers that take a path: the same name is overwritten each time.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& bytes) const;

 private:
  std::string path_;
};

std::string read_seed(const std::string& file);

}  // namespace tandem::fuzz
