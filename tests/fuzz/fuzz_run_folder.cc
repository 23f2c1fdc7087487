// Lines of samples.jsonl, windows.jsonl and timings.jsonl, and manifest.json.
#include "eval/report/schema.h"
#include "tests/eval/report/fixtures.h"
#include "tests/fuzz/fuzz.h"

int main(int argc, char** argv) {
  using namespace tandem;
  fuzz::Target target;
  target.seeds = {"s" + eval::to_line(eval::example_sample(3)), "t" + eval::to_line(eval::example_timing(3)),
                  "m" + eval::to_json_text(eval::example_manifest()), "w" + eval::to_line(eval::example_window(3))};
  target.consume = [](const std::string& input) {
    if (input.empty()) return;
    const std::string text = input.substr(1);
    // What is accepted must come back as it was written.
    if (input[0] == 't') {
      const eval::SampleTiming timing = eval::parse_timing(text, "input:1");
      eval::parse_timing(eval::to_line(timing), "again:1");
    } else if (input[0] == 'w') {
      const eval::WindowLoss window = eval::parse_window(text, "input:1");
      eval::parse_window(eval::to_line(window), "again:1");
    } else if (input[0] == 'm') {
      const eval::Manifest manifest = eval::parse_manifest(text, "input");
      eval::parse_manifest(eval::to_json_text(manifest), "again");
    } else {
      const eval::SampleResult sample = eval::parse_sample(text, "input:1");
      eval::parse_sample(eval::to_line(sample), "again:1");
    }
  };
  return fuzz::run(argc, argv, target);
}
