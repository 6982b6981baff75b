//! Memory of packets in flight: one ring, so that nothing is allocated for a packet. Each packet is
//! contiguous, and they leave in the order in which they came.

use super::port::LONGEST_PACKET;

/// Alignment of packets to cache lines, which also limits their number.
const ALIGNMENT: usize = 64;

/// A ring of packets.
#[derive(Debug)]
pub struct Ring {
    bytes: Box<[u8]>,
    /// Start of the oldest packet.
    head: usize,
    /// Start of the next packet; equal to `head` only if the ring is empty.
    tail: usize,
}

impl Ring {
    /// Returns a ring of at least `bytes` (more if that would not hold two packets). The kernel
    /// provides the memory only when it is first used.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(4 * LONGEST_PACKET);
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            head: 0,
            tail: 0,
        }
    }

    /// Returns the maximum number of packets.
    #[must_use]
    pub fn most_packets(&self) -> usize {
        self.bytes.len() / ALIGNMENT
    }

    /// Returns space for the next packet, of any length, or `None` if the ring is full.
    #[must_use]
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.tail >= self.head {
            if self.bytes.len() - self.tail < LONGEST_PACKET {
                // The tail may approach the head but never reach it: that would look empty.
                if self.head <= LONGEST_PACKET {
                    return None;
                }
                self.tail = 0;
            }
        } else if self.head - self.tail <= LONGEST_PACKET {
            return None;
        }
        self.bytes.get_mut(self.tail..self.tail + LONGEST_PACKET)
    }

    /// Keeps the first `len` bytes of the last [`room`](Self::room). Returns their position.
    pub fn keep(&mut self, len: usize) -> usize {
        let at = self.tail;
        self.tail += len.max(1).next_multiple_of(ALIGNMENT).min(LONGEST_PACKET);
        at
    }

    /// Releases all packets before the one at `oldest`, or all.
    pub fn release(&mut self, oldest: Option<usize>) {
        match oldest {
            Some(at) => self.head = at,
            // Starting over keeps a quiet link's packets in the same few cache lines.
            None => (self.head, self.tail) = (0, 0),
        }
    }

    /// Returns the `len` bytes at `at`.
    #[must_use]
    pub fn get(&self, at: usize, len: usize) -> &[u8] {
        self.bytes.get(at..at + len).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    #[test]
    fn packets_keep_their_bytes_round_and_round() {
        let mut ring = Ring::new(10 * LONGEST_PACKET);
        let mut held: VecDeque<(usize, usize, u8)> = VecDeque::new();
        let (mut full, mut put) = (0, 0_u32);
        for step in 0..4_000_u32 {
            let len = 1 + (step as usize * 7919) % LONGEST_PACKET;
            let mark = step as u8;
            if let Some(room) = ring.room() {
                room[..len].fill(mark);
                held.push_back((ring.keep(len), len, mark));
                put += 1;
            } else {
                full += 1;
                for _ in 0..=step % 9 {
                    let Some((at, len, mark)) = held.pop_front() else {
                        break;
                    };
                    assert!(
                        ring.get(at, len).iter().all(|b| *b == mark),
                        "packet overwritten"
                    );
                    ring.release(held.front().map(|(at, ..)| *at));
                }
            }
        }
        assert!(full > 100 && put > 1_000, "{full} {put}");
    }

    #[test]
    fn full_ring_takes_packets_again_after_release() {
        let mut ring = Ring::new(0);
        let mut kept = 0;
        while ring.room().is_some() {
            ring.keep(LONGEST_PACKET);
            kept += 1;
        }
        assert!((2..=4).contains(&kept), "{kept}");
        assert!(ring.room().is_none());
        ring.release(None);
        assert!(ring.room().is_some());
    }

    #[test]
    fn the_number_of_packets_is_bounded_by_the_bytes() {
        let mut ring = Ring::new(1 << 20);
        let mut kept = 0;
        while ring.room().is_some() {
            ring.keep(1);
            kept += 1;
        }
        assert!(kept <= ring.most_packets());
    }
}
