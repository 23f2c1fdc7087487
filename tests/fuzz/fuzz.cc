#include "tests/fuzz/fuzz.h"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fmt/core.h>
#include <fstream>
#include <iterator>
#include <random>

#include "engine/common/error.h"

namespace tandem::fuzz {
namespace {

constexpr std::size_t kLargest = 1 << 20;

class Mutator {
 public:
  Mutator(const std::vector<std::string>& seeds, std::uint64_t seed, std::uint64_t run)
      : seeds_(seeds), random_(seed * 0x9e3779b97f4a7c15u + run) {}

  std::string input() {
    std::string text = seeds_[below(seeds_.size())];
    for (std::size_t n = 1 + below(4); n > 0; --n) mutate(text);
    if (text.size() > kLargest) text.resize(kLargest);
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }

  void mutate(std::string& text) {
    static const std::vector<std::string> kPieces = {"null",
                                                     "true",
                                                     "false",
                                                     "-1",
                                                     "0",
                                                     "1e999",
                                                     "18446744073709551616",
                                                     "9223372036854775807",
                                                     "-9223372036854775808",
                                                     "0.5",
                                                     "[]",
                                                     "{}",
                                                     "\"\"",
                                                     "[[",
                                                     "]",
                                                     "}",
                                                     "\"",
                                                     "\\u0000",
                                                     "\\ud800",
                                                     ",",
                                                     ":",
                                                     "\xff",
                                                     "\xf0\x9f",
                                                     std::string(1, '\0'),
                                                     "\n",
                                                     "\r\n",
                                                     " ",
                                                     "4194304",
                                                     "99999999",
                                                     "a b",
                                                     "(?",
                                                     "\\p{L}+",
                                                     "(a+)+$",
                                                     "*",
                                                     "\\S",
                                                     "="};
    const std::size_t at = below(text.size() + 1);
    switch (below(9)) {
      case 0:  // flip
        if (!text.empty()) text[below(text.size())] ^= static_cast<char>(1u << below(8));
        break;
      case 1:  // any byte
        if (!text.empty()) text[below(text.size())] = static_cast<char>(random_());
        break;
      case 2:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 3:
        text.erase(at, 1 + below(16));
        break;
      case 4:
        text.resize(at);
        break;
      case 5: {  // a part of a seed
        const std::string& other = seeds_[below(seeds_.size())];
        const std::size_t from = below(other.size());
        text.insert(at, other, from, 1 + below(64));
        break;
      }
      case 6: {  // a part twice
        const std::string part = text.substr(at, 1 + below(64));
        text.insert(below(text.size() + 1), part);
        break;
      }
      case 7:
        replace_number(text, at);
        break;
      default:
        replace_value(text, at);
        break;
    }
  }

  /// The next run of digits becomes another number.
  void replace_number(std::string& text, std::size_t at) {
    static const char* const kNumbers[] = {
        "0", "1", "-1", "2147483647", "2147483648", "4294967296", "9223372036854775807", "1e30", "7"};
    const std::size_t first = text.find_first_of("0123456789", at);
    if (first == std::string::npos) return;
    const std::size_t last = std::min(text.find_first_not_of("0123456789", first), text.size());
    text.replace(first, last - first, kNumbers[below(std::size(kNumbers))]);
  }

  /// What stands between the next ':' and ',' or '}' becomes another JSON value.
  void replace_value(std::string& text, std::size_t at) {
    static const char* const kValues[] = {"null", "[]",  "{}",   "\"x\"",       "-3",
                                          "0",    "1.5", "true", "[[1,2],[3]]", "{\"type\":\"BPE\"}"};
    const std::size_t colon = text.find(':', at);
    if (colon == std::string::npos) return;
    const std::size_t end = std::min(text.find_first_of(",}", colon), text.size());
    text.replace(colon + 1, end - colon - 1, kValues[below(std::size(kValues))]);
  }

  const std::vector<std::string>& seeds_;
  std::mt19937_64 random_;
};

/// True where it was accepted.
bool consume(const Format& format, const std::string& input, std::uint64_t seed, std::uint64_t run) {
  try {
    format.consume(input);
    return true;
  } catch (const InputError&) {
    return false;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}, seed {}, run {}: not an InputError: {}\n", format.name, seed, run, error.what());
    std::ofstream("fuzz-crash-" + format.name, std::ios::binary) << input;
    std::abort();
  }
}

struct Count {
  std::uint64_t runs = 0, accepted = 0;
  double slowest = 0;  // seconds
};

}  // namespace

int run(int argc, char** argv, const std::vector<Format>& all) {
  std::uint64_t runs = 2000, seed = 1;
  double seconds = 0;
  std::string file, name;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string option = argv[i];
    if (option == "--runs") {
      runs = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--seconds") {
      seconds = std::atof(argv[i + 1]);
    } else if (option == "--seed") {
      seed = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (option == "--input") {
      file = argv[i + 1];
    } else if (option == "--format") {
      name = argv[i + 1];
    } else {
      fmt::print(stderr, "unknown option '{}': there are --runs, --seconds, --seed, --format and --input\n", option);
      return 2;
    }
  }
  std::vector<Format> formats = all;
  if (!name.empty()) std::erase_if(formats, [&](const Format& format) { return format.name != name; });
  if (formats.empty() || (!file.empty() && formats.size() > 1)) {
    fmt::print(stderr, "--format must be one of");
    for (const Format& format : all) fmt::print(stderr, " {}", format.name);
    fmt::print(stderr, "\n");
    return 2;
  }
  if (!file.empty()) {
    fmt::print("{}\n", consume(formats[0], read_seed(file), 0, 0) ? "accepted" : "refused");
    return 0;
  }
  for (const Format& format : formats)
    for (const std::string& valid : format.seeds) format.consume(valid);  // seeds must be valid
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  std::vector<Count> counts(formats.size());
  for (std::uint64_t done = 0; seconds > 0 ? elapsed() < seconds : done < runs; ++done) {
    const Format& format = formats[done % formats.size()];
    Count& count = counts[done % formats.size()];
    const double before = elapsed();
    count.accepted += consume(format, Mutator(format.seeds, seed, done).input(), seed, done) ? 1 : 0;
    count.slowest = std::max(count.slowest, elapsed() - before);
    ++count.runs;
  }
  for (std::size_t i = 0; i < formats.size(); ++i)
    fmt::print("{}: {} runs, {} accepted, the slowest {:.3f} s: clean\n", formats[i].name, counts[i].runs,
               counts[i].accepted, counts[i].slowest);
  fmt::print("seed {}, {:.1f} s\n", seed, elapsed());
  return 0;
}

ScratchFolder::ScratchFolder() {
  std::string name = std::filesystem::exists("/dev/shm") ? "/dev/shm/tandem-fuzz-XXXXXX" : "/tmp/tandem-fuzz-XXXXXX";
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no scratch folder");
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ScratchFolder::write(const std::string& name, const std::string& bytes) const {
  std::ofstream out(path_ + "/" + name, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string read_seed(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("no seed " + file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace tandem::fuzz
