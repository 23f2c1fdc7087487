// tandem calibrate: a hardware profile of a machine from what tandem-probe and `bench kernels` measured on it.
#include <filesystem>
#include <fmt/core.h>

#include "cli/commands.h"
#include "cli/output.h"
#include "hardware/calibration/calibration.h"

namespace tandem::cli {
namespace {

constexpr const char* kCalibrateFooter = R"(
Examples:
  tandem-probe --out probe.json                                      first, on the machine (four minutes)
  tandem calibrate --probe probe.json --base h200 --out mine.json
  tandem bench kernels --device cuda --out gpu.json                  attention and selection on the GPU
  tandem bench kernels --out all.json                                and on the CPU, by all threads
  tandem bench kernels --threads 1 --out one.json                    and by one
  tandem calibrate --probe probe.json --kernels gpu.json --kernels all.json --kernels one.json --base h200 --out mine.json
  tandem compare --hw ./mine.json                                    simulated for that machine

Kernels give what the probe cannot know. Every number of the profile says where it comes from: which figure, how often it was measured and how far it varied, or
that it was not measured and is the base's. The table has both beside each other. Only micro-benchmarks go in, never
the comparison that the profile will predict. hardware/profiles/README.md explains the fields.)";

struct CalibrateArguments {
  std::string base, title;
  std::vector<std::string> probes, kernels;
  unsigned threads = 0;
  bool graphs = false;
  OutFile out;
};

void calibrate(const CalibrateArguments& a) {
  const std::string& out = a.out.name;
  if (a.out.ending() != ".json")
    throw_input_error("--out is '{}'; a profile is a .json file, and its name is the profile's.", out);
  if (out.find(',') != std::string::npos)
    throw_input_error("--out is '{}': --hw takes names with commas between, so a profile's has none.", out);
  std::vector<std::string> inputs = a.probes;
  inputs.push_back(a.base);
  inputs.insert(inputs.end(), a.kernels.begin(), a.kernels.end());
  a.out.check({}, inputs);
  const HardwareProfile base = load_profile(a.base);
  hardware::ProbeReport probe = hardware::read_probe(a.probes.at(0));
  for (std::size_t i = 1; i < a.probes.size(); ++i) hardware::add_probe(probe, hardware::read_probe(a.probes[i]));
  std::vector<hardware::KernelReport> kernels;
  kernels.reserve(a.kernels.size());
  for (const std::string& file : a.kernels) kernels.push_back(hardware::read_kernels(file));
  const std::string name = std::filesystem::path(out).stem().string();
  const hardware::CalibratedProfile result =
      hardware::calibrate(probe, kernels, base, {name, a.title, a.threads, a.graphs});
  a.out.write(profile_to_json(result.profile));
  print("{}: {}\n\n{}\n{}: use it with --hw {}\n", result.profile.name, result.profile.title,
        hardware::calibration_text(result, base.name), out, out.find('/') == std::string::npos ? "./" + out : out);
  check_stdout();
}

}  // namespace

void add_calibrate(Command app) {
  Command command =
      app.subcommand("calibrate", "A hardware profile from what was measured on a machine", kCalibrateFooter);
  auto a = std::make_shared<CalibrateArguments>();
  command.required("--probe", a->probes,
                   "What tandem-probe wrote on the machine, JSON; may be given again, for runs of other sections");
  command.option("--kernels", a->kernels,
                 "What `tandem bench kernels --out` wrote there; may be given again, for the GPU and for other "
                 "numbers of threads");
  command.required("--base", a->base, "The profile that what was not measured is taken from: a name or a file");
  command.required("--out", a->out.name, "The profile's file, NAME.json");
  command.flag("--force", a->out.force, "Replace that file");
  command.option("--title", a->title, "Of the profile, in column heads; default: the GPU's and CPU's names");
  command.option("--threads", a->threads,
                 "For host workers; 0: all that the probe could use but one, for the control thread");
  command.flag("--graphs", a->graphs,
               "Launches as an engine has them that captures layers as graphs; this one launches every kernel");
  command.callback([a] { calibrate(*a); });
}

}  // namespace tandem::cli
