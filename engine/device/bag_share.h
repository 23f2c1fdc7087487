// What of a bag a lane with a thread of its own takes, as one operation: for devices whose lanes compete in real time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "engine/device/device.h"
#include "engine/device/task_queue.h"

namespace tandem {

/// The queue that the pullers empty together, with the bag's guard.
std::shared_ptr<TaskQueue> queue_of(const TaskBag& bag, std::span<const Puller> pullers);

/// Takes the tasks that the puller's side may take, one after another, until none is left; its cost is settled as that
/// of what it took. nullopt: there are none. An exception of a task ends it: others that have begun take what is left.
/// `reach`: of the bodies.
std::optional<Op> bag_share(const TaskBag& bag, const Puller& puller, std::uint32_t number,
                            std::shared_ptr<TaskQueue> queue, BodyContext::Reach reach);

}  // namespace tandem
