// How a model is asked: in its own chat template or in a format by name.
#pragma once

#include <string>

#include "cli/command.h"
#include "engine/model/chat.h"
#include "engine/model/model.h"

namespace tandem::cli {

/// --chat-format, --no-thinking: of commands that have --chat.
void add_chat_format(Command command, std::string& name);
void add_no_thinking(Command command, bool& flag);

/// Writes conversations in the format of this name, or where `given` is empty by the template of the model's folder.
/// The token that ends its answers becomes a stop token of the model. InputError for an unknown name, for a folder
/// without a template, and for `no_thinking` where that changes nothing.
ChatWriter choose_chat_format(const std::string& given, bool no_thinking, Model& model);

}  // namespace tandem::cli
