// Names of methods that fit into a table's column.
#include <algorithm>
#include <fmt/core.h>

#include "eval/report/table.h"

namespace tandem::eval {
namespace {

/// A label's name and its options: "hgca:beta=0.5,heads=1,2" has the options "beta=0.5" and "heads=1,2".
struct LabelParts {
  std::string name;
  std::vector<std::string> options;

  explicit LabelParts(const std::string& label) : name(label.substr(0, label.find(':'))) {
    for (std::size_t at = name.size() + 1; at < label.size();) {
      const std::size_t end = std::min(label.find(',', at), label.size());
      const std::string part = label.substr(at, end - at);
      if (options.empty() || part.find('=') != std::string::npos) {
        options.push_back(part);
      } else {
        options.back() += "," + part;
      }
      at = end + 1;
    }
  }

  bool has(const std::string& option) const { return std::ranges::find(options, option) != options.end(); }
};

/// The name with the fewest first options that no other label has all of; empty where that is longer than `longest`.
std::string telling_name(const std::vector<LabelParts>& all, std::size_t own, std::size_t longest) {
  const LabelParts& label = all[own];
  std::vector<const LabelParts*> alike;  // labels of the same method that the name does not tell from this one yet
  for (const LabelParts& other : all)
    if (other.name == label.name && other.options != label.options) alike.push_back(&other);
  std::string name = label.name;
  bool first = true;
  for (const std::string& option : label.options) {
    if (alike.empty()) break;
    if (std::erase_if(alike, [&](const LabelParts* other) { return !other->has(option); }) == 0) continue;
    name += (first ? ":" : ",") + option;
    first = false;
  }
  return alike.empty() && text_columns(name) <= longest ? name : "";
}

}  // namespace

std::vector<std::string> short_labels(const std::vector<std::string>& labels, std::size_t longest) {
  const std::vector<LabelParts> parts(labels.begin(), labels.end());
  std::vector<std::string> names;
  names.reserve(labels.size());
  for (std::size_t i = 0; i < labels.size(); ++i) {
    std::string name = text_columns(labels[i]) <= longest ? labels[i] : telling_name(parts, i, longest);
    names.push_back(name.empty() ? fmt::format("{}#{}", cut(parts[i].name, longest - 4), i + 1) : std::move(name));
  }
  return names;
}

std::vector<std::string> labels_of(const Summary& s, bool markdown) {
  std::vector<std::string> labels;
  labels.reserve(s.methods.size());
  for (const MethodSummary& m : s.methods) labels.push_back(m.label);
  return markdown ? labels : short_labels(labels);
}

std::string labels_note(const Summary& s, bool markdown) {
  const std::vector<std::string> labels = labels_of(s, markdown);
  std::string out;
  for (std::size_t i = 0; i < labels.size(); ++i)
    if (labels[i] != s.methods[i].label) out += note(labels[i] + " = " + s.methods[i].label, markdown);
  return out;
}

}  // namespace tandem::eval
