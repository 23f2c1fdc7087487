#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hardware/probe/probe.h"

namespace tandem::probe {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options parse(const std::vector<std::string>& arguments) {
  return parse_options(arguments);
}

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ProbeOptions, Defaults) {
  const Options options = parse({});
  EXPECT_TRUE(options.out.empty());
  EXPECT_TRUE(options.sections.empty());
  EXPECT_FALSE(options.quick);
  EXPECT_LT(options.seconds, 240);  // the promise of --help: under four minutes
}

TEST(ProbeOptions, BothForms) {
  const Options options = parse({"--out=a.json", "--sections", "dram,link,dram", "--memory", "64M", "--label=x=y"});
  EXPECT_EQ(options.out, "a.json");
  EXPECT_THAT(options.sections, ElementsAre("dram", "link"));
  EXPECT_EQ(options.memory, std::size_t{64} << 20);
  EXPECT_EQ(options.label, "x=y");
}

TEST(ProbeOptions, QuickCapsTimeUnlessSecondsAreGiven) {
  EXPECT_EQ(parse({"--quick"}).seconds, 20);
  EXPECT_EQ(parse({"--seconds", "3", "--quick"}).seconds, 3);
}

TEST(ProbeOptions, ErrorsNameTheOptionAndTheValue) {
  EXPECT_THAT(error_of({"--sections", "dram,lnk"}), HasSubstr("'lnk'"));
  EXPECT_THAT(error_of({"--sections", "dram,lnk"}), HasSubstr("handoff"));
  EXPECT_THAT(error_of({"--sections", ""}), HasSubstr("--sections"));
  EXPECT_THAT(error_of({"--seconds", "soon"}), HasSubstr("'soon'"));
  for (const char* bad : {"0", "-1", "nan", "inf", "1e9", "5s", ""}) {
    EXPECT_THAT(error_of({"--seconds", bad}), HasSubstr("--seconds")) << bad;
  }
  for (const char* bad : {"", "0", "-5", "1T", "5MB", "99999999999999999999", "99999999999999999G", "1K"}) {
    EXPECT_THAT(error_of({"--memory", bad}), HasSubstr("--memory")) << bad;
  }
  EXPECT_THAT(error_of({"--out"}), HasSubstr("--out needs a value"));
  EXPECT_THAT(error_of({"--out="}), HasSubstr("empty"));
  EXPECT_THAT(error_of({"--quick=yes"}), HasSubstr("takes no value"));
  EXPECT_THAT(error_of({"--fast"}), HasSubstr("'--fast'"));
  EXPECT_THAT(error_of({"probe.json"}), HasSubstr("'probe.json'"));
}

TEST(ProbeOptions, HelpNamesEverySectionAndOption) {
  const std::string text = help_text();
  for (const SectionSpec& spec : section_specs()) EXPECT_THAT(text, HasSubstr("\n  " + spec.name + " "));
  for (const char* option :
       {"--out", "--force", "--sections", "--quick", "--seconds", "--memory", "--label", "--help"}) {
    EXPECT_THAT(text, HasSubstr(option));
  }
}

}  // namespace
}  // namespace tandem::probe
