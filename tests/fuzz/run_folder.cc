// Lines of samples.jsonl, windows.jsonl and timings.jsonl, and manifest.json. What is accepted must come back as it was
// written.
#include "eval/report/schema.h"
#include "tests/eval/report/fixtures.h"
#include "tests/fuzz/fuzz.h"

namespace tandem::fuzz {

int fuzz_run_folder(int argc, char** argv) {
  using namespace eval;
  return tandem::fuzz::run(argc, argv,
                           {{"sample",
                             {to_line(example_sample(3))},
                             [](const std::string& text) {
                               parse_line<SampleResult>(to_line(parse_line<SampleResult>(text, "input:1")), "again:1");
                             }},
                            {"timing",
                             {to_line(example_timing(3))},
                             [](const std::string& text) {
                               parse_line<SampleTiming>(to_line(parse_line<SampleTiming>(text, "input:1")), "again:1");
                             }},
                            {"window",
                             {to_line(example_window(3))},
                             [](const std::string& text) {
                               parse_line<WindowLoss>(to_line(parse_line<WindowLoss>(text, "input:1")), "again:1");
                             }},
                            {"manifest", {to_json_text(example_manifest())}, [](const std::string& text) {
                               parse_manifest(to_json_text(parse_manifest(text, "input")), "again");
                             }}});
}

}  // namespace tandem::fuzz
