// equal.json: what find_equal() found, so that a run that goes on need not look for it again.
#include <algorithm>
#include <array>
#include <limits>

#include "engine/common/read_file.h"
#include "eval/equal/equal.h"
#include "eval/report/json_reader.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kEqualVersion = 1;
constexpr std::array<const char*, 5> kFits = {"set", "least", "most", "as given", "refused"};  // by Fit

Json json_of(const EqualMethod& m) {
  return {{"given", m.given},
          {"method", m.spec},
          {"option", m.option},
          {"value", m.value},
          {"bytes", json_or_null(m.bytes)},
          {"fit", kFits[static_cast<std::size_t>(m.fit)]}};
}

EqualMethod read_method(const Json& json, const std::string& where) {
  ObjectReader in(json, where);
  EqualMethod m{in.text("given", false), in.text("method", false), in.text("option"), in.text("value")};
  m.bytes = in.number_or_null("bytes", 0, std::numeric_limits<double>::max());
  const std::string fit = in.text("fit");
  const auto* const found = std::find(kFits.begin(), kFits.end(), fit);
  if (found == kFits.end()) in.fail("fit", "one of set, least, most, as given, refused");
  m.fit = static_cast<Fit>(found - kFits.begin());
  make_method(m.spec);
  in.finish();
  return m;
}

Equal read(const Json& json, const std::string& where) {
  ObjectReader in(json, where);
  if (in.integer<int>("schema_version") != kEqualVersion) in.fail("schema_version", "1");
  Equal equal;
  equal.asked = parse_equal_bytes(in.text("asked"), where + ": the field 'asked'");
  equal.given = in.texts("given");
  if (in.text("reference") != kReference) in.fail("reference", kReference);
  equal.reference_bytes = in.number("reference_bytes", 0, std::numeric_limits<double>::max());
  for (const Json& method : in.array("as_given")) equal.as_given.push_back(read_method(method, where + ", as_given"));
  for (const Json& part : in.array("shares")) {
    ObjectReader share(part, where + ", shares");
    EqualShare& entry = equal.shares.emplace_back();
    entry.share = share.number("share", 0, 1);
    for (const Json& method : share.array("methods")) entry.methods.push_back(read_method(method, where + ", methods"));
    share.finish();
  }
  in.finish();
  return equal;
}

}  // namespace

std::string equal_json(const Equal& equal) {
  Json json = {{"schema_version", kEqualVersion},
               {"asked", to_text(equal.asked)},
               {"given", equal.given},
               {"reference", kReference},
               {"reference_bytes", equal.reference_bytes},
               {"as_given", Json::array()},
               {"shares", Json::array()}};
  for (const EqualMethod& method : equal.as_given) json["as_given"].push_back(json_of(method));
  for (const EqualShare& share : equal.shares) {
    Json methods = Json::array();
    for (const EqualMethod& method : share.methods) methods.push_back(json_of(method));
    json["shares"].push_back({{"share", share.share}, {"methods", std::move(methods)}});
  }
  return json.dump(2) + "\n";
}

std::optional<Equal> read_equal(const std::filesystem::path& folder, const EqualBytes& asked,
                                const std::vector<std::string>& methods) {
  const std::filesystem::path file = folder / kEqualFile;
  if (!path_exists(file)) return std::nullopt;
  const std::string text = read_file(file);
  try {
    Equal equal = read(parse_object(text, file.string()), file.string());
    if (equal.asked == asked && equal.given == methods) return equal;
  } catch (const InputError&) {
    // Found anew, and written over: the run itself says whether it can go on.
  }
  return std::nullopt;
}

}  // namespace tandem::eval
