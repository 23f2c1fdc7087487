#include "engine/model/safetensors.h"

#include <algorithm>
#include <map>
#include <random>
#include <sys/stat.h>
#include <vector>

#include "tests/engine/model/model_folder.h"

namespace tandem::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct Stored {
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

std::string write_file(const std::map<std::string, Stored>& tensors) {
  Json header = {{"__metadata__", {{"format", "pt"}}}};
  std::string body;
  for (const auto& [name, t] : tensors) {
    header[name] = {
        {"dtype", t.dtype}, {"shape", t.shape}, {"data_offsets", {body.size(), body.size() + t.bytes.size()}}};
    body += t.bytes;
  }
  return safetensors_bytes(header.dump(), body);
}

class Safetensors : public ::testing::Test {
 protected:
  std::string sentence(const std::string& bytes) {
    write_bytes(file_, bytes);
    return sentence_of([&] { TensorFiles::open_file(file_); });
  }
  /// A header with one tensor described by `entry`, over eight bytes.
  std::string sentence_of_entry(const std::string& entry) {
    return sentence(safetensors_bytes("{\"a\":" + entry + "}", "12345678"));
  }
  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "model.safetensors";
};

TEST_F(Safetensors, GivesBackWhatWasWritten) {
  std::mt19937 random(1);
  const std::map<std::string, std::size_t> sizes = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
                                                    {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}};
  std::map<std::string, Stored> tensors;
  for (const auto& [dtype, size] : sizes) {
    for (const std::vector<std::uint64_t>& shape :
         {std::vector<std::uint64_t>{}, {3}, {2, 5}, {2, 1, 3}, {0}, {4, 0, 1ull << 40}}) {
      std::size_t count = size;
      for (const std::uint64_t n : shape) count *= n;
      std::string bytes(count, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      tensors[dtype + "." + std::to_string(tensors.size())] = {dtype, shape, bytes};
    }
  }
  tensors["na\u00efve \"name\"\\\n"] = {"U8", {1}, "x"};
  write_bytes(file_, write_file(tensors));
  const TensorFiles files = TensorFiles::open_folder(folder_.path());
  ASSERT_EQ(files.tensors().size(), tensors.size());
  for (const auto& [name, t] : tensors) {
    const TensorInfo& info = files.tensors().at(name);
    EXPECT_EQ(info.dtype, t.dtype);
    EXPECT_EQ(info.shape, t.shape);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(info.bytes.data()), info.bytes.size()), t.bytes);
    EXPECT_EQ(info.file, file_.string());
  }
  EXPECT_EQ(files.source(), file_.string());
}

TEST_F(Safetensors, TheMappingOutlivesTheReaderAndTheFile) {
  write_bytes(file_, write_file({{"a", {"U8", {5}, "hello"}}}));
  std::shared_ptr<const void> mapping;
  std::span<const std::byte> bytes;
  {
    const TensorFiles files = TensorFiles::open_file(file_);
    mapping = files.storage();
    bytes = files.tensors().at("a").bytes;
  }
  std::filesystem::remove(file_);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "hello");
}

TEST_F(Safetensors, HostileEntriesAreSentences) {
  ASSERT_EQ(sentence_of_entry(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})"), "");  // what the cases damage
  const std::pair<const char*, const char*> cases[] = {
      {"{}", "lacks"},
      {"7", "lacks"},
      {"null", "lacks"},
      {R"({"shape":[2],"data_offsets":[0,8]})", "lacks"},
      {R"({"dtype":"F32","data_offsets":[0,8]})", "lacks"},
      {R"({"dtype":"F32","shape":[2]})", "lacks"},
      {R"({"dtype":4,"shape":[2],"data_offsets":[0,8]})", "lacks"},
      {R"({"dtype":"Q4","shape":[2],"data_offsets":[0,8]})", "unknown dtype 'Q4'"},
      {R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})", "unknown dtype"},
      {R"({"dtype":"","shape":[2],"data_offsets":[0,8]})", "unknown dtype"},
      {R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":["2"],"data_offsets":[0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[2,1,1,1,1,1,1,1,1],"data_offsets":[0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]})", "overflows"},
      {R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]})", "overflows"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,9]})", "cut off"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,16]})", "cut off"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", "cut off"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]})", "cut off"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[2],"data_offsets":[0.0,8]})", "not lists of whole numbers"},
      {R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", "where its shape and dtype need 12"},
      {R"({"dtype":"F32","shape":[],"data_offsets":[0,8]})", "where its shape and dtype need 4"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[0,4]})", "[4, 8) belong to no tensor"},
      {R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", "[0, 4) belong to no tensor"},
      {R"({"dtype":"F32","shape":[0],"data_offsets":[0,0]})", "[0, 8) belong to no tensor"},
  };
  for (const auto& [entry, wanted] : cases) {
    EXPECT_THAT(sentence_of_entry(entry), AllOf(HasSubstr(file_.string()), HasSubstr(wanted))) << entry;
  }
}

TEST_F(Safetensors, HostileHeadersAreSentences) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_THAT(
      sentence(safetensors_bytes("{" + a + R"(,"b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})", "12345678")),
      HasSubstr("overlap at byte 3"));
  EXPECT_THAT(sentence(safetensors_bytes("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1234")),
              HasSubstr("overlap"));
  EXPECT_THAT(
      sentence(safetensors_bytes("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})", "12345678")),
      HasSubstr("[4, 6) belong to no tensor"));
  EXPECT_THAT(sentence(safetensors_bytes("{" + a + "," + a + "}", "1234")), HasSubstr("'a' occurs twice"));
  EXPECT_THAT(sentence(safetensors_bytes("{" + a + "}", "1234trailing")), HasSubstr("[4, 12) belong to no tensor"));
  for (const char* header : {"[]", "null", "\"a\""}) {
    EXPECT_THAT(sentence(safetensors_bytes(header, "")), HasSubstr("the header is not a JSON object")) << header;
  }
  for (const std::string& header :
       {std::string("{"), std::string("{}x"), std::string(), std::string("{\"\xff\":1}"), std::string(100, '\0')}) {
    EXPECT_THAT(sentence(safetensors_bytes(header, "")), HasSubstr("the header: not valid JSON from byte")) << header;
  }
  for (const std::string& bomb : {std::string(1000000, '['), "{\"a\":" + std::string(1000000, '[') + "}",
                                  "{\"__metadata__\":" + std::string(200000, '{')}) {
    EXPECT_THAT(sentence(safetensors_bytes(bomb, "")), HasSubstr("nested")) << bomb.size();
  }
  EXPECT_EQ(sentence(safetensors_bytes("{" + a + "}   ", "1234")), "");  // padding, as writers add it
  EXPECT_EQ(sentence(safetensors_bytes("{}", "")), "");
}

TEST_F(Safetensors, HostileLengthsAreSentences) {
  EXPECT_THAT(sentence(""), HasSubstr("at least 8"));
  EXPECT_THAT(sentence("1234567"), HasSubstr("at least 8"));
  EXPECT_THAT(sentence(std::string(8, '\xff')), HasSubstr("header claims"));
  EXPECT_THAT(sentence(std::string("\x10\0\0\0\0\0\0\0{}", 10)), HasSubstr("header claims 16 bytes"));
  EXPECT_THAT(sentence(std::string("\3\0\0\0\0\0\0\0{}", 10)), HasSubstr("header claims 3 bytes"));
  EXPECT_THAT(sentence(std::string("\xf8\xff\xff\xff\xff\xff\xff\xff{}", 10)), HasSubstr("header claims"));
}

TEST_F(Safetensors, WhatIsNotAFileIsASentence) {
  EXPECT_THAT(sentence_of([&] { TensorFiles::open_file(file_); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(sentence_of([&] { TensorFiles::open_folder(folder_.path()); }),
              HasSubstr("neither model.safetensors nor"));
  std::filesystem::create_directory(file_);
  EXPECT_THAT(sentence_of([&] { TensorFiles::open_file(file_); }), HasSubstr("not a regular file"));
  std::filesystem::remove(file_);
  ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);  // must not wait for a writer
  EXPECT_THAT(sentence_of([&] { TensorFiles::open_file(file_); }), HasSubstr("not a regular file"));
}

TEST_F(Safetensors, RandomDamageGivesASentenceOrWhatTheHeaderSays) {
  std::map<std::string, Stored> tensors;
  for (int i = 0; i < 12; ++i) tensors["layer." + std::to_string(i)] = {"F32", {2, 3}, std::string(24, char('a' + i))};
  const std::string sound = write_file(tensors);
  std::uint64_t header = 0;
  std::memcpy(&header, sound.data(), 8);
  std::mt19937 random(4);
  int refused = 0, opened = 0;
  for (int i = 0; i < 1500; ++i) {
    std::string bytes = sound;
    if (i % 5 == 0) bytes.resize(random() % bytes.size());
    if (i % 7 == 0)
      bytes.insert(random() % (bytes.size() + 1), std::string(random() % 20, static_cast<char>(random())));
    for (auto n = i % 5 == 0 ? random() % 3 : 1 + random() % 3; n-- > 0 && !bytes.empty();) {
      const std::size_t range = i % 4 == 1 ? bytes.size() : std::min<std::size_t>(bytes.size(), 8 + header);
      // Digits reach further into the checks than arbitrary bytes, which mostly end the JSON.
      bytes[random() % range] =
          random() % 2 == 0 ? static_cast<char>('0' + random() % 10) : static_cast<char>(random());
    }
    write_bytes(file_, bytes);
    try {
      const TensorFiles files = TensorFiles::open_file(file_);
      std::size_t sum = 0;
      for (const auto& [name, info] : files.tensors()) {  // every byte must be readable
        for (const std::byte b : info.bytes) sum += std::to_integer<std::size_t>(b);
      }
      EXPECT_GT(sum, 0u);
      ++opened;
    } catch (const InputError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(opened, 50);
}

TEST_F(Safetensors, AnIndexNamesItsShards) {
  write_bytes(folder_.path() / "one.safetensors", write_file({{"a", {"U8", {1}, "1"}}, {"b", {"U8", {1}, "2"}}}));
  write_bytes(folder_.path() / "two.safetensors", write_file({{"c", {"U8", {1}, "3"}}}));
  const auto index = folder_.path() / "model.safetensors.index.json";
  write_bytes(index, R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors", "c": "two.safetensors"}})");
  const TensorFiles files = TensorFiles::open_folder(folder_.path());
  EXPECT_EQ(files.tensors().size(), 3u);
  EXPECT_EQ(files.source(), index.string());
  EXPECT_EQ(files.tensors().at("c").file, (folder_.path() / "two.safetensors").string());

  write_bytes(folder_.path() / "three.safetensors", write_file({{"a", {"U8", {1}, "4"}}}));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"weight_map": {"a": "one.safetensors", "d": "three.safetensors"}})", "in two files"},
      {"{}", "weight_map"},
      {"[", "not a JSON object"},
      {R"({"weight_map": 3})", "weight_map"},
      {R"({"weight_map": {"a": 3}})", "not a text"},
      {R"({"weight_map": {"a": "../x"}})", "not a plain file name"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "not a plain file name"},
      {R"({"weight_map": {"a": ".."}})", "not a plain file name"},
      {R"({"weight_map": {"a": ""}})", "not a plain file name"},
      {R"({"weight_map": {"a": "."}})", "not a regular file"},
      {R"({"weight_map": {"a": "gone.safetensors"}})", "gone.safetensors"},
  };
  for (const auto& [text, wanted] : cases) {
    write_bytes(index, text);
    EXPECT_THAT(sentence_of([&] { TensorFiles::open_folder(folder_.path()); }), HasSubstr(wanted)) << text;
  }
}

TEST_F(Safetensors, TheHashSeesEveryByte) {
  const std::string sound = write_file({{"a", {"U8", {21}, std::string(21, 'x')}}});
  write_bytes(file_, sound);
  const std::uint64_t hash = TensorFiles::open_file(file_).hash();
  EXPECT_EQ(TensorFiles::open_file(file_).hash(), hash);
  for (std::size_t i = 1; i <= 21; ++i) {
    std::string changed = sound;
    changed[changed.size() - i] = 'y';
    write_bytes(file_, changed);
    EXPECT_NE(TensorFiles::open_file(file_).hash(), hash) << i;
  }
  // The definition must not drift, stored results are compared by it: values of an implementation in Python.
  const std::string text = "whole words of eight bytes and a tail";
  EXPECT_EQ(content_hash(std::as_bytes(std::span(text))), 0x66bb2fab05e82846ull);
  EXPECT_EQ(content_hash(std::as_bytes(std::span(text)), 1), 0x4a897aaa4826f010ull);
  EXPECT_EQ(content_hash({}), 0xcbf29ce44fd0bfc1ull);
  EXPECT_NE(content_hash(std::as_bytes(std::span(text)), 1), content_hash(std::as_bytes(std::span(text)), 2));
  EXPECT_NE(content_hash(std::as_bytes(std::span("a", 1))), content_hash(std::as_bytes(std::span("a\0", 2))));
}

}  // namespace
}  // namespace tandem::testing
