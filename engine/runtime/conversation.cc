#include "engine/runtime/conversation.h"

#include <algorithm>
#include <utility>

namespace tandem {

Conversation::Reply Conversation::reply(std::span<const std::int32_t> tokens, std::uint32_t max_new_tokens,
                                        const DecodeOptions& options) {
  Reply reply;
  const std::vector<std::int32_t> said = std::exchange(said_, {});
  const bool goes_on = session_ != nullptr && !said.empty() && tokens.size() > said.size() &&
                       std::equal(said.begin(), said.end(), tokens.begin());
  if (goes_on) {
    reply.prefilled = tokens.size() - said.size();
    reply.prefill_ns = session_->append(0, tokens.subspan(said.size()), max_new_tokens);
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
    reply.prefilled = tokens.size() - 1;
    reply.prefill_ns = prefix->prefill_ns;
    engine_.release(*prefix);
  }
  reply.result = session_->decode(options);
  const DecodedSequence& sequence = reply.result.sequences[0];
  said_.assign(tokens.begin(), tokens.end());
  said_.insert(said_.end(), sequence.tokens.begin(), sequence.tokens.end());
  if (sequence.stopped) said_.push_back(sequence.stop_token);
  return reply;
}

}  // namespace tandem
