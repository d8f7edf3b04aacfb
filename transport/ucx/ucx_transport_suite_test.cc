#include "transport/transport_suite.h"
#include "transport/ucx/rdma_of_this_machine.h"
#include "transport/ucx/ucx_test_pair.h"

namespace cistern {
namespace {

// TCP and shared memory everywhere; real verbs where there is a device (tests/softroce has one).
std::vector<TransportKind> Kinds() {
  std::vector<FabricUnderTest> fabrics = {{"tcp", "tcp"},
                                          {"shm", "posix,self,tcp"},
                                          {"tcp_by_gets", "tcp", "127.0.0.1", true, true},
                                          {"shm_by_gets", "posix,self,tcp", "127.0.0.1", true, true}};
  AddRc(fabrics);
  std::vector<TransportKind> kinds;
  for (const FabricUnderTest& fabric : fabrics) {
    kinds.push_back(
        {fabric.name, fabric.gets, true, [fabric](TransportHandler& client, TransportHandler& node) {
           return std::make_unique<UcxPair>(client, node, fabric.transports, fabric.host, fabric.emulated);
         }});
  }
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(Ucx, TransportSuite, ::testing::ValuesIn(Kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace cistern
