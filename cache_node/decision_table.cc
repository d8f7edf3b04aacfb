#include "cache_node/decision_table.h"

namespace cistern {

void DecisionTable::Forget(Nanos now) {
  while (!order_.empty() && rows_.at(order_.front()).end <= now) {
    rows_.erase(order_.front());
    order_.pop_front();
  }
}

DecisionTable::Decision DecisionTable::Propose(const BlockHash& request, uint64_t tokens, Nanos now) {
  Forget(now);
  if (const auto at = rows_.find(request); at != rows_.end()) {
    ++at->second.decision.asked;
    return at->second.decision;
  }
  if (rows_.size() == kDecisionsMax) {
    rows_.erase(order_.front());
    order_.pop_front();
  }
  order_.push_back(request);
  return rows_.emplace(request, Row{{tokens, 1}, now + kDecisionLife}).first->second.decision;
}

DecisionTable::Decision DecisionTable::Peek(const BlockHash& request, Nanos now) {
  Forget(now);
  const auto at = rows_.find(request);
  return at == rows_.end() ? Decision{} : at->second.decision;
}

}  // namespace cistern
