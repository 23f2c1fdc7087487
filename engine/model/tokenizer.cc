#include "engine/model/tokenizer.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sentencepiece_processor.h>

#include "engine/common/error.h"
#include "engine/model/safetensors.h"

namespace tandem {
namespace {

class SentencePieceTokenizer : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!in && bytes.empty()) throw_input_error("{} cannot be read.", file.string());
    const auto status = processor_.LoadFromSerializedProto(bytes);
    if (!status.ok() || processor_.GetPieceSize() <= 0) {
      throw_input_error("{} is not a SentencePiece model, or it is damaged.", file.string());
    }
    hash_ = fmt::format("{:016x}", content_hash(std::as_bytes(std::span(bytes))));
  }

  std::vector<std::int32_t> encode(std::string_view text, bool add_bos) const override {
    std::vector<int> ids;
    const auto status = processor_.Encode(std::string(text), &ids);
    if (!status.ok()) throw_input_error("The text cannot be tokenized: {}.", status.ToString());
    std::vector<std::int32_t> out;
    out.reserve(ids.size() + 1);
    if (add_bos && bos() >= 0) out.push_back(bos());
    out.insert(out.end(), ids.begin(), ids.end());
    return out;
  }

  std::string decode(std::span<const std::int32_t> tokens) const override {
    std::vector<int> ids;
    for (const std::int32_t t : tokens) {
      TANDEM_CHECK(t >= 0 && static_cast<std::uint32_t>(t) < vocab_size(), "token {} of a vocabulary of {}", t,
                   vocab_size());
      if (!processor_.IsControl(t)) ids.push_back(t);
    }
    std::string text;
    const auto status = processor_.Decode(ids, &text);
    TANDEM_CHECK(status.ok(), "decoding failed: {}", status.ToString());
    return text;
  }

  std::uint32_t vocab_size() const override { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }
  std::int32_t bos() const override { return processor_.bos_id(); }
  std::string hash() const override { return hash_; }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "tokenizer.model";
  if (std::filesystem::exists(file)) return std::make_unique<SentencePieceTokenizer>(file);
  throw_input_error(
      "{} has no tokenizer.model; SentencePiece is the one kind of tokenizer this version reads{}.", folder.string(),
      std::filesystem::exists(folder / "tokenizer.json") ? " (tokenizer.json is there, but not supported yet)" : "");
}

}  // namespace tandem
