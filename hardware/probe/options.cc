// Command line of tandem-probe.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "hardware/probe/probe.h"

namespace tandem::probe {
namespace {

std::string names_of_sections() {
  std::string text;
  for (const SectionSpec& spec : section_specs()) text += (text.empty() ? "" : ", ") + spec.name;
  return text;
}

std::vector<std::string> parse_sections(const std::string& text) {
  std::vector<std::string> names;
  std::size_t start = 0;
  while (start <= text.size()) {
    const std::size_t comma = std::min(text.find(',', start), text.size());
    const std::string name = text.substr(start, comma - start);
    const auto& specs = section_specs();
    const bool known = std::any_of(specs.begin(), specs.end(), [&](const SectionSpec& s) { return s.name == name; });
    if (!known) {
      throw UsageError("--sections: there is no section '" + name + "'; the sections are " + names_of_sections() + ".");
    }
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    start = comma + 1;
  }
  return names;
}

double parse_seconds(const std::string& text) {
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(seconds) || seconds <= 0 ||
      seconds > 3600) {
    throw UsageError("--seconds: '" + text + "' is not a number of seconds above 0 and up to 3600.");
  }
  return seconds;
}

}  // namespace

std::size_t parse_bytes(const std::string& option, const std::string& text) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string suffix(end, text.data() + text.size());
  int shift = -1;
  if (suffix.empty()) shift = 0;
  if (suffix == "K") shift = 10;
  if (suffix == "M") shift = 20;
  if (suffix == "G") shift = 30;
  if (error != std::errc() || number == 0 || shift < 0 || number > (std::numeric_limits<std::size_t>::max() >> shift)) {
    throw UsageError(option + ": '" + text +
                     "' is not a size; write bytes, or a whole number with K, M or G, as in 512M.");
  }
  return number << shift;
}

Options parse_options(std::span<const std::string> arguments) {
  Options options;
  bool seconds_given = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string name = arguments[i];
    std::optional<std::string> inline_value;
    if (const std::size_t equals = name.find('='); name.starts_with("--") && equals != std::string::npos) {
      inline_value = name.substr(equals + 1);
      name.resize(equals);
    }
    const auto value = [&]() -> std::string {
      if (inline_value) return *inline_value;
      if (i + 1 >= arguments.size()) throw UsageError(name + " needs a value; --help shows how it is written.");
      return arguments[++i];
    };
    const auto flag = [&]() {
      if (inline_value) throw UsageError(name + " takes no value, but '" + *inline_value + "' was given.");
      return true;
    };
    if (name == "--help" || name == "-h") {
      options.help = flag();
    } else if (name == "--force") {
      options.force = flag();
    } else if (name == "--quick") {
      options.quick = flag();
    } else if (name == "--out") {
      options.out = value();
      if (options.out.empty()) throw UsageError("--out: the file name is empty; leave --out away to print.");
    } else if (name == "--label") {
      options.label = value();
    } else if (name == "--sections") {
      options.sections = parse_sections(value());
    } else if (name == "--seconds") {
      options.seconds = parse_seconds(value());
      seconds_given = true;
    } else if (name == "--memory") {
      options.memory = parse_bytes(name, value());
      if (options.memory < (std::size_t{16} << 20)) {
        throw UsageError("--memory: less than 16M says nothing about memory beyond the caches; give 16M or more.");
      }
    } else {
      throw UsageError("'" + arguments[i] + "' is not an option of tandem-probe; --help lists them.");
    }
  }
  if (options.quick && !seconds_given) options.seconds = 20;
  return options;
}

std::string help_text() {
  std::string text =
      "tandem-probe measures what a hardware profile needs: memory, matrix products, launches, the link between host "
      "and\n"
      "device, hand-offs between CPU and GPU, and attention on the CPU. It writes one JSON document.\n"
      "\n"
      "  tandem-probe --out probe.json                    everything this machine allows, under four minutes\n"
      "  tandem-probe --quick                             fewer points, about 20 seconds, JSON on standard output\n"
      "  tandem-probe --sections dram,cpu_attention       only these\n"
      "\n"
      "Options\n"
      "  --out FILE       write the JSON here (rewritten after each section, so that an interrupted run keeps what it "
      "has)\n"
      "  --force          replace that file\n"
      "  --sections A,B   run only these sections\n"
      "  --quick          fewer points; caps the time at 20 s unless --seconds is given\n"
      "  --seconds S      cap on the measuring time of all sections together (default 200); figures that do not fit "
      "are\n"
      "                   left out and named under 'skipped'\n"
      "  --memory SIZE    largest set of buffers a section may take, in host or device memory (default 1G); never "
      "more\n"
      "                   than half of what is free\n"
      "  --label NAME     the machine's name in the result (default: the CPU model, and the GPU's name)\n"
      "  --help           this text\n"
      "\n"
      "Sections\n";
  for (const SectionSpec& spec : section_specs()) {
    text += "  " + spec.name + std::string(16 - spec.name.size(), ' ') + spec.what + (spec.gpu ? "  [GPU]" : "") + "\n";
  }
  text +=
      "\n"
      "Each figure is the median of at least 7 repeats after a warm-up, with the 10th and 90th percentile. A section "
      "that\n"
      "cannot run says why in the JSON and the others go on. An idle machine gives figures worth keeping: look at p10 "
      "and\n"
      "p90 before using one, and at load_average_start.\n"
      "Exit codes: 0 done, 2 bad usage, 3 a section failed or the output could not be written.\n";
  return text;
}

}  // namespace tandem::probe
