//! Xorshift: the same seed yields the same numbers.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u32) -> Self {
        // A state of zero would yield zeros only.
        Self(u64::from(seed) | 1 << 32)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit.max(1)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }
}
