//! Computes load curves: requests per second over simulated time. Counts are integers, so that they depend neither on
//! the step size nor on floating point.

use crate::Millis;

/// Unit of amounts: thousandths of a request per second times milliseconds.
pub const MILLIONTHS: u128 = 1_000_000;

/// No curve changes after 34 years, so that all arithmetic fits into 128 bits.
const HORIZON: Millis = 1 << 40;

/// Straight pieces per wave, less than 0.2 % of the amplitude away from the sine. No piece ends where the sine is one
/// half, the only place where rounding could depend on the last bit of the machine's `sin`.
const PIECES_PER_WAVE: u64 = 64;

/// Thousandths of a request per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u32);

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Load {
    Constant(Rate),
    /// Applied one after the other; the rate is 0 after the last.
    Steps(Vec<LoadStep>),
    /// `from` until `start`, `to` from `end` on, linear in between.
    Ramp {
        start: Millis,
        end: Millis,
        from: Rate,
        to: Rate,
    },
    /// Starts at the mean and rises first. Negative rates are cut off at zero.
    Wave {
        mean: Rate,
        amplitude: Rate,
        period: Millis,
    },
    Sum(Vec<Load>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadStep {
    pub rate: Rate,
    pub lasts: Millis,
}

impl Load {
    /// The rate in the millisecond that begins at `time`.
    pub fn rate_at(&self, time: Millis) -> Rate {
        Rate(u32::try_from(self.integral(time, time.saturating_add(1))).unwrap_or(u32::MAX))
    }

    /// Requests after `from` up to `to`, in [`MILLIONTHS`]. Exact: the parts of an interval add up to the whole.
    pub fn integral(&self, from: Millis, to: Millis) -> u128 {
        self.amount_by(to).saturating_sub(self.amount_by(from))
    }

    /// Arrival times after `from` up to `to`, in order. The n-th request of a run arrives in the millisecond in which
    /// the integral from zero reaches n.
    pub fn arrivals(&self, from: Millis, to: Millis) -> Arrivals<'_> {
        Arrivals {
            load: self,
            after: from,
            until: to,
            arrived: self.amount_by(from) / MILLIONTHS,
            last: self.amount_by(to) / MILLIONTHS,
        }
    }

    /// The integral from zero to `time`. It never decreases.
    fn amount_by(&self, time: Millis) -> u128 {
        match self {
            Self::Constant(rate) => constant_area(*rate, time),
            Self::Steps(steps) => {
                let (_, amount) = steps.iter().fold((time, 0), |(left, amount), step| {
                    let spent = left.min(step.lasts);
                    (left - spent, amount + constant_area(step.rate, spent))
                });
                amount
            }
            Self::Ramp { start, end, from, to } => {
                let start = (*start).min(HORIZON);
                let length = (*end).min(HORIZON).saturating_sub(start);
                let climbing = time.saturating_sub(start).min(length);
                let after = time.saturating_sub(start).saturating_sub(length);
                constant_area(*from, time.min(start))
                    + ramp_area(*from, *to, length, climbing)
                    + constant_area(*to, after)
            }
            Self::Wave { mean, period: 0, .. } => constant_area(*mean, time),
            Self::Wave { mean, amplitude, period } => {
                let period = (*period).min(HORIZON);
                let whole = u128::from(time / period) * wave_area(*mean, *amplitude, period, period);
                whole + wave_area(*mean, *amplitude, period, time % period)
            }
            Self::Sum(loads) => loads.iter().map(|load| load.amount_by(time)).sum(),
        }
    }
}

/// Arrival times of requests; see [`Load::arrivals`].
#[derive(Clone, Debug)]
pub struct Arrivals<'a> {
    load: &'a Load,
    after: Millis,
    until: Millis,
    arrived: u128,
    last: u128,
}

impl Iterator for Arrivals<'_> {
    type Item = Millis;

    fn next(&mut self) -> Option<Millis> {
        if self.arrived >= self.last {
            return None;
        }
        self.arrived += 1;
        let due = self.arrived * MILLIONTHS;
        // The amount never decreases, so a binary search finds the first millisecond that reaches `due`.
        let (mut early, mut late) = (self.after, self.until);
        while early < late {
            let middle = early + (late - early) / 2;
            if self.load.amount_by(middle) < due { early = middle + 1 } else { late = middle }
        }
        // Several requests may arrive in one millisecond, so the next search starts here, not after it.
        self.after = late;
        Some(late)
    }
}

fn constant_area(rate: Rate, time: Millis) -> u128 {
    u128::from(rate.0) * u128::from(time)
}

/// Area under the first `time` of a line between two rates over `length`, in whole millionths. Rounded down, so that it
/// never decreases.
fn ramp_area(from: Rate, to: Rate, length: Millis, time: Millis) -> u128 {
    if length == 0 {
        return 0;
    }
    let (from, to) = (i128::from(from.0), i128::from(to.0));
    let (length, time) = (i128::from(length), i128::from(time.min(length)));
    let doubled = 2 * length * from * time + (to - from) * time * time;
    (doubled / (2 * length)).unsigned_abs()
}

/// Area under the first `time` of one period.
fn wave_area(mean: Rate, amplitude: Rate, period: Millis, time: Millis) -> u128 {
    let boundary = |piece: u64| period * piece / PIECES_PER_WAVE;
    (0..PIECES_PER_WAVE)
        .take_while(|piece| boundary(*piece) < time)
        .map(|piece| {
            let (start, end) = (boundary(piece), boundary(piece + 1));
            let (from, to) = (wave_rate(mean, amplitude, piece), wave_rate(mean, amplitude, piece + 1));
            ramp_area(from, to, end - start, time - start)
        })
        .sum()
}

/// Rate at the start of a piece.
fn wave_rate(mean: Rate, amplitude: Rate, piece: u64) -> Rate {
    let turn = (piece % PIECES_PER_WAVE) as f64 / PIECES_PER_WAVE as f64;
    let swing = f64::from(amplitude.0) * (turn * std::f64::consts::TAU).sin();
    // The cast saturates, so a negative rate becomes zero.
    Rate((f64::from(mean.0) + swing.round()) as u32)
}
