//! Solves the steady state of a queue in front of a batching server: Poisson arrivals, at most `max_batch` requests in
//! service and `max_queue` waiting, and a service rate that depends on the number in service. A request that finds the
//! queue full is rejected.
//!
//! The means are those of accepted requests. A request finds `i` others with a probability proportional to
//! `c_i · rate^i`, where `c_i` does not depend on the rate. In such a family a higher rate makes higher states more
//! likely (monotone likelihood ratio), so the mean of a quantity that does not fall with `i` does not fall with the rate.

/// Weights above this are scaled down together with all sums, before a product could overflow.
const MAX_WEIGHT: f64 = 1e100;
/// Limit of the ratio of two successive weights. A larger ratio gives the same result in `f64`.
const MAX_GROWTH: f64 = 1e150;
/// Below this `count · (1 - ratio)`, closed forms of geometric sums lose digits and their series converges fast.
const SERIES_LIMIT: f64 = 0.05;
/// The first omitted term is below `SERIES_LIMIT^12 / 12!`, relative to the sum.
const SERIES_TERMS: u32 = 12;

/// `service_time` is the mean time in service of a request that is one of `n` in service, for `1 <= n <= max_batch`.
/// The completion rate `n / service_time(n)` must not fall with `n`. A `max_batch` of 0 counts as 1.
#[derive(Clone, Copy, Debug)]
pub struct Queue<F> {
    pub max_batch: u32,
    pub max_queue: u32,
    pub service_time: F,
}

/// Times and rates are in the unit of `service_time`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// Rate of accepted requests, which is also the rate of completions.
    pub throughput: f64,
    /// Mean time in the queue.
    pub wait: f64,
    /// Mean time in service.
    pub service_time: f64,
    /// Mean number in service that an accepted request finds once it is served, itself included.
    pub concurrency: f64,
    /// Share of accepted requests that do not wait.
    pub immediate: f64,
    /// Probability that there is no request.
    pub idle: f64,
}

impl SteadyState {
    /// Mean number of requests in service, by Little's law.
    pub fn in_service(&self) -> f64 {
        self.throughput * self.service_time
    }

    /// Mean number of requests in service or waiting.
    pub fn in_system(&self) -> f64 {
        self.throughput * self.response()
    }

    /// Mean time from arrival to completion.
    pub fn response(&self) -> f64 {
        self.wait + self.service_time
    }
}

impl<F: Fn(f64) -> f64> Queue<F> {
    /// `arrival_rate` is finite and not negative.
    pub fn solve(&self, arrival_rate: f64) -> SteadyState {
        let max_batch = f64::from(self.max_batch.max(1));
        // States in which a request is served at once: it finds `n - 1` others and becomes the n-th in service.
        let (mut idle, mut immediate, mut concurrency, mut service_time) = (1.0, 0.0, 0.0, 0.0);
        let (mut weight, mut growth, mut interval) = (1.0, 1.0, 0.0);
        let mut n = 1.0;
        while n <= max_batch {
            weight *= growth;
            if weight > MAX_WEIGHT {
                for sum in [&mut idle, &mut immediate, &mut concurrency, &mut service_time] {
                    *sum /= weight;
                }
                weight = 1.0;
            }
            let time = (self.service_time)(n);
            immediate += weight;
            concurrency += weight * n;
            service_time += weight * time;
            interval = time / n;
            growth = (arrival_rate * interval).min(MAX_GROWTH);
            n += 1.0;
        }

        // States in which a request waits for `j` completions have the weights `weight · ratio^j`. Above 1 all weights
        // are taken relative to the largest one, `weight · ratio^max_queue`.
        let ratio = arrival_rate * interval;
        let (waiting, completions, last);
        if ratio <= 1.0 {
            let tail = GeometricSums::new(ratio, self.max_queue);
            waiting = weight * ratio * tail.sum;
            completions = weight * ratio * tail.ascending;
            last = weight * tail.power;
        } else {
            let tail = GeometricSums::new(ratio.recip(), self.max_queue);
            let scale = tail.power / weight;
            for sum in [&mut idle, &mut immediate, &mut concurrency, &mut service_time] {
                *sum *= scale;
            }
            waiting = tail.sum;
            completions = tail.descending;
            last = 1.0;
        }
        let accepted = immediate + waiting;
        // The state with a full queue has the weight `arrival_rate · full`, which can exceed the range of `f64`.
        let full = last * interval;
        SteadyState {
            throughput: accepted / (accepted / arrival_rate + full),
            wait: completions * interval / accepted,
            service_time: (service_time + waiting * interval * max_batch) / accepted,
            concurrency: (concurrency + waiting * max_batch) / accepted,
            immediate: immediate / accepted,
            idle: idle / (accepted + arrival_rate * full),
        }
    }
}

/// Sums of powers of a `ratio` from 0 to 1.
struct GeometricSums {
    /// `ratio^count`
    power: f64,
    /// `Σ ratio^j` for `0 <= j < count`
    sum: f64,
    /// `Σ j · ratio^(j-1)` for `1 <= j <= count`
    ascending: f64,
    /// `Σ j · ratio^(count-j)` for `1 <= j <= count`
    descending: f64,
}

impl GeometricSums {
    fn new(ratio: f64, count: u32) -> Self {
        if count == 0 {
            return Self { power: 1.0, sum: 0.0, ascending: 0.0, descending: 0.0 };
        }
        let count = f64::from(count);
        // Exact for a ratio from 0.5 to 1, where it decides the precision.
        let gap = 1.0 - ratio;
        let exponent = count * (-gap).ln_1p();
        let power = exponent.exp();
        let sum = if gap > 0.0 { -exponent.exp_m1() / gap } else { count };
        let (ascending, descending);
        if count * gap > SERIES_LIMIT {
            ascending = (sum - count * power) / gap;
            descending = (count - ratio * sum) / gap;
        } else {
            // Binomial expansions around ratio = 1: `Σ (m+1) C(count+1, m+2) (-gap)^m`, and the same without `m+1`.
            let mut term = count * (count + 1.0) / 2.0;
            let (mut weighted, mut plain) = (0.0, 0.0);
            for m in (0..SERIES_TERMS).map(f64::from) {
                weighted += (m + 1.0) * term;
                plain += term;
                term *= -gap * (count - 1.0 - m) / (m + 3.0);
            }
            ascending = weighted;
            descending = plain;
        }
        Self { power, sum, ascending, descending }
    }
}
