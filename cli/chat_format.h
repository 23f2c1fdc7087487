// Which chat format a model is asked in.
#pragma once

#include <string>

#include "engine/model/chat.h"
#include "engine/model/model.h"

namespace tandem::cli {

/// The format of this name, or where `given` is empty the model's own, which is said on stderr. The token that ends its
/// answers becomes a stop token of the model. InputError for an unknown name and for a model that seems to have no
/// format.
ChatFormat choose_chat_format(const std::string& given, Model& model);

}  // namespace tandem::cli
