#include "core/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <new>
#include <thread>

namespace cistern {
namespace {

bool IsReadable(int fd, int timeout_ms = 0) {
  pollfd wait{fd, POLLIN, 0};
  return ::poll(&wait, 1, timeout_ms) == 1;
}

TEST(Mailbox, RunsTasksInTheOrderTheyCame) {
  Mailbox box;
  std::vector<int> ran;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(box.Post([&ran, i] { ran.push_back(i); }));
  EXPECT_TRUE(box.Drain());
  EXPECT_EQ(ran, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_FALSE(box.Drain());
}

TEST(Mailbox, WakesItsFdUntilDrained) {
  Mailbox box;
  EXPECT_FALSE(IsReadable(box.fd()));
  ASSERT_TRUE(box.Post([] {}));
  ASSERT_TRUE(box.Post([] {}));
  EXPECT_TRUE(IsReadable(box.fd()));
  box.Drain();
  EXPECT_FALSE(IsReadable(box.fd()));
}

TEST(Mailbox, DrainsAfterAForkedChildHasReadTheSharedCounter) {
  Mailbox box;
  bool ran = false;
  ASSERT_TRUE(box.Post([&ran] { ran = true; }));
  uint64_t count = 0;
  ASSERT_EQ(::read(box.fd(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  EXPECT_TRUE(box.Drain());
  EXPECT_TRUE(ran);
}

TEST(Mailbox, ATaskThatRanOutOfMemoryDoesNotBreakTheBox) {
  Mailbox box;
  bool ran = false;
  ASSERT_TRUE(box.Post([] { throw std::bad_alloc(); }));
  EXPECT_THROW(box.Drain(), std::bad_alloc);
  ASSERT_TRUE(box.Post([&ran] { ran = true; }));
  EXPECT_TRUE(box.Drain());
  EXPECT_TRUE(ran);
}

TEST(Mailbox, RefusesTaskAboveItsDepth) {
  Mailbox box;
  size_t ran = 0;
  for (size_t i = 0; i < kMailboxDepthMax; ++i) ASSERT_TRUE(box.Post([&ran] { ++ran; }));
  EXPECT_FALSE(box.Post([&ran] { ++ran; }));
  EXPECT_TRUE(box.Drain());
  EXPECT_EQ(ran, kMailboxDepthMax);
  EXPECT_TRUE(box.Post([] {}));
}

TEST(Mailbox, RunsWhatATaskPostsInTheNextDrain) {
  Mailbox box;
  int ran = 0;
  ASSERT_TRUE(box.Post([&] {
    ++ran;
    EXPECT_TRUE(box.Post([&ran] { ++ran; }));
  }));
  EXPECT_TRUE(box.Drain());
  EXPECT_EQ(ran, 1);
  EXPECT_TRUE(IsReadable(box.fd()));
  EXPECT_TRUE(box.Drain());
  EXPECT_EQ(ran, 2);
}

TEST(Mailbox, FreesATaskAsSoonAsItRan) {
  Mailbox box;
  auto held = std::make_shared<int>(1);
  ASSERT_TRUE(box.Post([held] {}));
  ASSERT_TRUE(box.Post([&held] { EXPECT_EQ(held.use_count(), 1); }));
  box.Drain();
}

TEST(Mailbox, TakesTasksFromManyThreadsAndLosesNone) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 20'000;
  Mailbox box;
  int ran = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&box, &ran] {
      for (int i = 0; i < kTasks; ++i) {
        while (!box.Post([&ran] { ++ran; })) std::this_thread::yield();
      }
    });
  }
  // Only woken by the fd: a wake-up that got lost would end the loop short.
  while (ran < kThreads * kTasks && IsReadable(box.fd(), 10'000)) box.Drain();
  EXPECT_EQ(ran, kThreads * kTasks);
  for (std::thread& thread : threads) thread.join();
}

// What wakes the owner is there when it looks: else it would look again and again while the poster, whose CPU
// it may have taken by waking up, does not get to say so.
TEST(Mailbox, WhatWokeTheOwnerIsThere) {
  Mailbox mailbox;
  constexpr int kRounds = 20'000;
  std::atomic<int> ran{0};
  std::thread poster([&] {
    for (int i = 0; i < kRounds; ++i) {
      while (ran.load() < i) std::this_thread::yield();
      ASSERT_TRUE(mailbox.Post([&] { ++ran; }));
    }
  });
  int in_vain = 0;
  while (ran.load() < kRounds) {
    pollfd wait{.fd = mailbox.fd(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&wait, 1, -1), 1);
    if (!mailbox.Drain()) ++in_vain;
  }
  poster.join();
  EXPECT_EQ(in_vain, 0);
}

}  // namespace
}  // namespace cistern
