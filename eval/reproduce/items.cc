#include "eval/reproduce/items.h"

#include <algorithm>
#include <array>
#include <fmt/ranges.h>

#include "engine/common/paths.h"
#include "engine/common/read_file.h"
#include "eval/report/json_fields.h"

namespace tandem::eval {
namespace {

constexpr std::array<const char*, 6> kVerdicts = {"reproduced",    "partly",      "not",
                                                  "needs weights", "needs a GPU", "planned"};

void read_item(ObjectReader& reader, Item& item) {
  reader.filled("source", item.source);
  reader.filled("item", item.name);
  reader.filled("shows", item.shows);
  reader.optional("command", item.command);
  reader.optional("clock", item.clock);
  reader.optional("fitted", item.fitted);
  reader.filled("published", item.published);
  reader.optional("ours", item.ours);
  reader.filled("verdict", item.verdict);
  reader.require(std::ranges::find(kVerdicts, item.verdict) != kVerdicts.end(), "verdict",
                 fmt::format("one of: {}", fmt::join(kVerdicts, ", ")));
  reader.filled("reason", item.reason);
  // Where the script finds the numbers.
  for (const char* field : {"cells", "published_from", "ours_from"})
    if (reader.has(field)) reader.text(field);
}

}  // namespace

std::vector<Item> load_items() {
  const auto file = data_path("eval/reproduce/items.json");
  const auto json = parse_object(read_file(file), file.string());
  ObjectReader reader(json, file.string());
  std::vector<Item> items;
  reader.numbered("items", "item", items, read_item);
  reader.finish();
  return items;
}

std::string counted_verdicts(const std::vector<Item>& items) {
  std::vector<std::string> counts;
  for (const char* verdict : kVerdicts)
    if (const auto count = std::ranges::count(items, verdict, &Item::verdict); count > 0)
      counts.push_back(fmt::format("{} {}", count, verdict));
  return fmt::format("{} tables and figures: {}.", items.size(), fmt::join(counts, ", "));
}

}  // namespace tandem::eval
