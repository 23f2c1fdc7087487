// A conversation of one sequence: turn by turn, each behind what was said, in one decode session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/runtime/decode_session.h"
#include "engine/runtime/engine.h"

namespace tandem {

class Conversation {
 public:
  struct Reply {
    DecodeResult result;        // one sequence
    std::size_t prefilled = 0;  // tokens whose KV this turn computed before its first step
    Nanos prefill_ns = 0;       // virtual or real time of that
  };

  /// Both must outlive the conversation, which has the engine to itself.
  Conversation(Engine& engine, Method& method) : engine_(engine), method_(method) {}

  /// Decodes behind `tokens`, the conversation from its beginning. Where they begin with all that was said so far, the
  /// session goes on: only what is new is computed, with exact attention over the KV the method still has, and the
  /// replies' KV stays as the method made it. Otherwise (a chat format may rewrite earlier turns, a tokenizer may cut a
  /// reply differently than the model did) the conversation is prefilled anew, as it is after any error. InputError as
  /// in Engine::prefill.
  Reply reply(std::span<const std::int32_t> tokens, std::uint32_t max_new_tokens, const DecodeOptions& options = {}) {
    Reply made;
    const std::vector<std::int32_t> said = std::exchange(said_, {});
    const bool goes_on = session_ != nullptr && !said.empty() && tokens.size() > said.size() &&
                         std::equal(said.begin(), said.end(), tokens.begin());
    if (goes_on) {
      made.prefilled = tokens.size() - said.size();
      made.prefill_ns = session_->append(0, tokens.subspan(said.size()), max_new_tokens);
    } else {
      session_.reset();  // before the prefill, which may need its room
      const std::unique_ptr<Prefix> prefix = engine_.prefill(tokens);
      const DecodeRequest request{prefix.get(), max_new_tokens};
      try {
        session_ = engine_.open_session(method_, {&request, 1});
      } catch (...) {
        engine_.release(*prefix);
        throw;
      }
      made.prefilled = tokens.size() - 1;
      made.prefill_ns = prefix->prefill_ns;
      engine_.release(*prefix);
    }
    made.result = session_->decode(options);
    const DecodedSequence& sequence = made.result.sequences[0];
    said_.assign(tokens.begin(), tokens.end());
    said_.insert(said_.end(), sequence.tokens.begin(), sequence.tokens.end());
    if (sequence.stopped) said_.push_back(sequence.stop_token);
    return made;
  }

 private:
  Engine& engine_;
  Method& method_;
  std::unique_ptr<DecodeSession> session_;
  std::vector<std::int32_t> said_;  // by both sides, in the session; the last token has no KV yet
};

}  // namespace tandem
