// equal.json: what find_equal() found, so that a run that goes on need not look for it again.
#include <array>
#include <limits>

#include "engine/common/read_file.h"
#include "eval/match_bytes/match_bytes.h"
#include "eval/report/json_fields.h"

namespace tandem::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kEqualVersion = 1;
constexpr std::array<const char*, 5> kFits = {"set", "least", "most", "as given", "refused"};  // by Fit

constexpr double kMostBytes = std::numeric_limits<double>::max();

constexpr auto kVisitMethod = [](auto& f, auto& method) {
  f.filled("given", method.given);
  f.filled("method", method.spec);
  f.field("option", method.option);
  f.field("value", method.value);
  f.number("bytes", method.bytes, 0, kMostBytes);
  f.one_of("fit", method.fit, kFits);
};

constexpr auto kVisitEqual = [](auto& f, auto& equal, auto& asked) {
  int version = kEqualVersion;
  std::string reference = kReference;
  f.field("schema_version", version);
  f.require(version == kEqualVersion, "schema_version", "1");
  f.field("asked", asked);
  f.field("given", equal.given);
  f.field("reference", reference);
  f.require(reference == kReference, "reference", kReference);
  f.number("reference_bytes", equal.reference_bytes, 0, kMostBytes);
  f.list("as_given", equal.as_given, kVisitMethod);
  f.list("shares", equal.shares, [](auto& in, auto& share) {
    in.number("share", share.share, 0, 1);
    in.list("methods", share.methods, kVisitMethod);
  });
};

Equal read(const Json& json, const std::string& where) {
  ObjectReader in(json, where);
  Equal equal;
  std::string asked;
  kVisitEqual(in, equal, asked);
  in.finish();
  equal.asked = parse_equal_bytes(asked, where + ": the field 'asked'");
  for (const EqualMethod& method : equal.as_given) make_method(method.spec);
  for (const EqualShare& share : equal.shares)
    for (const EqualMethod& method : share.methods) make_method(method.spec);
  return equal;
}

}  // namespace

std::string equal_json(const Equal& equal) {
  Json json;
  ObjectWriter out(json);
  const std::string asked = to_text(equal.asked);
  kVisitEqual(out, equal, asked);
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
