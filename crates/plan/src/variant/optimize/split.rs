//! Distributes the demand of one model over its variants at least cost.
//!
//! The search is exact unless it exceeds [`SplitOptions::max_steps`]. An exact answer never has less capacity for more
//! demand, because the order of the answers does not depend on the demand. Once it is carried out, it stays the answer,
//! because a change in two steps is never cheaper than in one.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use serde::Serialize;

/// Variant that can serve a part of the demand. The name is unique.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VariantSupply {
    pub name: String,
    /// Variants of one type share its units.
    pub accelerator_type: String,
    pub units_per_replica: i32,
    /// Requests per second that a replica serves within the targets. `None` if it is unknown: then the variant keeps
    /// its replicas, and they are not counted.
    pub rate_per_replica: Option<f64>,
    pub cost_per_replica: f64,
    pub min: i32,
    pub max: Option<i32>,
    pub current: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SplitOptions {
    /// Part of the price that the addition or the removal of a replica costs, from 0 to [`MAX_TRANSITION_PENALTY`].
    /// Load moves between variants only if it saves more than that.
    pub transition_penalty: f64,
    /// Bounds the time of a search. Only models with many replicas of almost equally efficient variants need more than
    /// 10,000.
    pub max_steps: u32,
}

/// The price of a change in upstream's solver.
const DEFAULT_TRANSITION_PENALTY: f64 = 0.1;

/// From 1 on, the removal of a replica that is not needed would save nothing.
pub const MAX_TRANSITION_PENALTY: f64 = 0.9;

impl Default for SplitOptions {
    fn default() -> Self {
        Self { transition_penalty: DEFAULT_TRANSITION_PENALTY, max_steps: 10_000 }
    }
}

/// Replicas of each variant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Split {
    pub replicas: BTreeMap<String, i32>,
    /// Requests per second that the replicas serve within the targets.
    pub capacity: f64,
    pub cost: f64,
    /// Price of the replicas that are added or removed, times the transition penalty.
    pub transition_cost: f64,
    /// Demand above the capacity, in requests per second. Bounds or accelerators prevent more.
    pub unserved: f64,
    /// Variants that keep their replicas because their rate or their cost is unknown.
    pub held: Vec<String>,
    /// Variants below their minimum because there are too few units of their type.
    pub below_min: Vec<String>,
    /// `false` if a cheaper answer can exist, or one with less unserved demand: the search ended at `max_steps`, or
    /// variants compete for so many units of a type that the highest capacity is only estimated.
    pub proven: bool,
}

/// The demand is negative or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct InvalidDemand;

/// The cheapest replicas that serve `demand`, in requests per second. `available` are the units that the model can use
/// of each type, including those that it uses already; `None` sets no limit.
pub fn split_demand(
    variants: &[VariantSupply],
    demand: f64,
    available: Option<&BTreeMap<String, i32>>,
    options: SplitOptions,
) -> Result<Split, InvalidDemand> {
    let problem = Problem::new(variants, demand, available, options)?;
    let mut search = Search::new(&problem, options.max_steps);
    for counts in problem.single_variant_answers() {
        search.offer(&counts);
    }
    search.offer(&problem.greedy());
    search.offer(&problem.current_answer());
    search.offer(&problem.largest);
    search.run();
    Ok(problem.answer(&search.best, search.steps > 0 && problem.largest_is_exact))
}

/// Variant with a known rate.
struct Item<'a> {
    supply: &'a VariantSupply,
    rate: f64,
    /// Price of a replica plus a part of it that is too small to matter and breaks ties by price, then by name.
    cost: f64,
    min: i32,
    max: i32,
    pool: usize,
    units: i64,
}

impl Item<'_> {
    /// Price of `count` replicas and of the transition to them.
    fn objective(&self, count: i32, penalty: f64) -> f64 {
        let changed = (i64::from(count) - i64::from(self.supply.current)).abs();
        #[expect(clippy::cast_precision_loss, reason = "numbers of replicas are below 2^53")]
        let changed = changed as f64;
        (f64::from(count) + penalty * changed) * self.cost
    }
}

struct Problem<'a> {
    demand: f64,
    /// Rate that an answer has to serve: the demand, or as much of it as possible.
    need: f64,
    penalty: f64,
    /// By cost per rate.
    items: Vec<Item<'a>>,
    held: Vec<(&'a VariantSupply, i32)>,
    below_min: Vec<String>,
    /// Units of each type that are left at the minimum of all variants. `i64::MAX` without a limit.
    pools: Vec<i64>,
    /// An answer that serves the demand, otherwise the one with the highest capacity that is known.
    largest: Vec<i32>,
    /// `false` if an answer with more capacity than `largest` can exist, although the demand is above it.
    largest_is_exact: bool,
}

/// Far above any real number of replicas, so that products with units and prices do not overflow.
const MAX_REPLICAS: f64 = 1_000_000.0;

/// A quotient just above a whole number is that number: otherwise rounding errors cost a replica.
const ROUNDING: f64 = 1e-9;

/// Tie-break per replica, as a part of the largest cost.
const TIE_BREAK: f64 = 1e-10;

/// Rounding error of a sum over variants.
const SUM_ROUNDING: f64 = 1e-12;

/// Most units of a type for which the highest capacity is computed exactly.
const MAX_EXACT_UNITS: i64 = 128;

impl<'a> Problem<'a> {
    fn new(
        variants: &'a [VariantSupply],
        demand: f64,
        available: Option<&BTreeMap<String, i32>>,
        options: SplitOptions,
    ) -> Result<Self, InvalidDemand> {
        if !demand.is_finite() || demand < 0.0 {
            return Err(InvalidDemand);
        }
        let mut sorted: Vec<&VariantSupply> = variants.iter().collect();
        sorted.sort_by(|a, b| a.cost_per_replica.total_cmp(&b.cost_per_replica).then_with(|| a.name.cmp(&b.name)));
        let mut pool_names: Vec<&str> = Vec::new();
        let mut pools: Vec<i64> = Vec::new();
        let mut items: Vec<Item<'a>> = Vec::new();
        let mut held = Vec::new();
        let costs = sorted.iter().map(|supply| supply.cost_per_replica).filter(|cost| cost.is_finite());
        let highest_cost = costs.fold(0.0, f64::max);
        let tie_break = TIE_BREAK * if highest_cost > 0.0 { highest_cost } else { 1.0 };
        let mut rank = 0.0;
        for supply in sorted {
            let name = supply.accelerator_type.as_str();
            let pool = pool_names.iter().position(|known| *known == name).unwrap_or_else(|| {
                let units =
                    available.map_or(i64::MAX, |available| i64::from(available.get(name).copied().unwrap_or(0)));
                pool_names.push(name);
                pools.push(units.max(0));
                pools.len() - 1
            });
            let units = i64::from(supply.units_per_replica.max(1));
            // If the bounds contradict each other, the upper one wins.
            let max = supply.max.map_or(i32::MAX, |max| max.max(0));
            let min = supply.min.max(0).min(max);
            let rate = supply.rate_per_replica.filter(|rate| rate.is_finite() && *rate > 0.0);
            let cost = Some(supply.cost_per_replica).filter(|cost| cost.is_finite() && *cost >= 0.0);
            if let (Some(rate), Some(cost)) = (rate, cost) {
                rank += 1.0;
                items.push(Item { supply, rate, cost: cost + rank * tie_break, min, max, pool, units });
            } else {
                held.push((supply, pool, units, min, supply.current.clamp(min, max)));
            }
        }
        // Replicas that are held run already, so that they come before the minimum of others.
        let mut below_min = Vec::new();
        let held = held
            .into_iter()
            .map(|(supply, pool, units, min, count)| {
                let kept = reserve(&mut pools[pool], units, count);
                if kept < min {
                    below_min.push(supply.name.clone());
                }
                (supply, kept)
            })
            .collect();
        items.sort_by(|a, b| (a.cost / a.rate).total_cmp(&(b.cost / b.rate)).then(a.cost.total_cmp(&b.cost)));
        for item in &mut items {
            let kept = reserve(&mut pools[item.pool], item.units, item.min);
            if kept < item.min {
                below_min.push(item.supply.name.clone());
                item.min = kept;
            }
        }
        for item in &mut items {
            let room = pools[item.pool] / item.units;
            item.max = item.max.min(item.min.saturating_add(i32::try_from(room).unwrap_or(i32::MAX)));
        }
        below_min.sort();
        let penalty = options.transition_penalty.clamp(0.0, MAX_TRANSITION_PENALTY);
        // With this tolerance, a demand that is a multiple of a rate needs no further replica.
        let need = demand * (1.0 - ROUNDING);
        let mut problem =
            Self { demand, need, penalty, items, held, below_min, pools, largest: Vec::new(), largest_is_exact: true };
        (problem.largest, problem.largest_is_exact) = problem.largest();
        problem.need = need.min(problem.capacity(&problem.largest) * (1.0 - ROUNDING));
        Ok(problem)
    }

    /// Counts with the highest capacity, cut where the demand is served, and whether no others have more.
    fn largest(&self) -> (Vec<i32>, bool) {
        let (counts, exact) = self.filled_pools();
        if exact || self.serves(&counts) {
            return (counts, true);
        }
        let mut others = self.single_variant_answers();
        others.push(self.greedy());
        let mut largest = counts;
        for counts in others {
            if self.capacity(&counts) > self.capacity(&largest) {
                largest = counts;
            }
        }
        let serves = self.serves(&largest);
        (largest, serves)
    }

    fn filled_pools(&self) -> (Vec<i32>, bool) {
        let mut exact = true;
        let mut counts: Vec<i32> = self.items.iter().map(|item| item.min).collect();
        for pool in 0..self.pools.len() {
            let members: Vec<usize> = (0..self.items.len()).filter(|index| self.items[*index].pool == pool).collect();
            let rest = self.need - self.capacity(&counts);
            if rest <= 0.0 {
                break;
            }
            let free = self.pools[pool];
            let all: i64 =
                members.iter().map(|index| units_above_min(&self.items[*index])).fold(0, i64::saturating_add);
            if all <= free {
                for index in members {
                    let item = &self.items[index];
                    let needed = exact_replicas_for((self.need - self.capacity(&counts)).max(0.0), item.rate);
                    counts[index] = item.max.min(item.min.saturating_add(needed));
                }
            } else if free <= MAX_EXACT_UNITS {
                self.fill_pool(&members, free, &mut counts);
            } else {
                self.fill_pool_greedily(members, free, &mut counts);
                exact = false;
            }
        }
        (counts, exact)
    }

    /// Highest capacity of a shared type, unit by unit.
    fn fill_pool(&self, members: &[usize], free: i64, counts: &mut [i32]) {
        let size = usize::try_from(free).unwrap_or(0);
        let mut best = vec![0.0; size + 1];
        let mut choices: Vec<Vec<i32>> = Vec::with_capacity(members.len());
        for index in members {
            let item = &self.items[*index];
            let step = usize::try_from(item.units).unwrap_or(usize::MAX);
            let mut next = best.clone();
            let mut choice = vec![0; size + 1];
            for units in 0..=size {
                let mut extra = 1;
                while let Some(rest) =
                    usize::try_from(extra).ok().and_then(|extra| units.checked_sub(step.saturating_mul(extra)))
                {
                    if extra > item.max - item.min {
                        break;
                    }
                    let rate = best[rest] + f64::from(extra) * item.rate;
                    if rate > next[units] {
                        next[units] = rate;
                        choice[units] = extra;
                    }
                    extra += 1;
                }
            }
            best = next;
            choices.push(choice);
        }
        let mut units = size;
        for (index, choice) in members.iter().zip(&choices).rev() {
            let extra = choice[units];
            counts[*index] = self.items[*index].min + extra;
            let used = usize::try_from(self.items[*index].units * i64::from(extra)).unwrap_or(usize::MAX);
            units = units.saturating_sub(used);
        }
    }

    fn fill_pool_greedily(&self, mut members: Vec<usize>, mut free: i64, counts: &mut [i32]) {
        #[expect(clippy::cast_precision_loss, reason = "a comparison of densities")]
        let density = |index: &usize| self.items[*index].rate / self.items[*index].units as f64;
        members.sort_by(|a, b| density(b).total_cmp(&density(a)));
        for index in members {
            let item = &self.items[index];
            counts[index] = item.min + reserve(&mut free, item.units, item.max - item.min);
        }
    }

    fn capacity(&self, counts: &[i32]) -> f64 {
        self.items.iter().zip(counts).map(|(item, count)| f64::from(*count) * item.rate).sum()
    }

    fn serves(&self, counts: &[i32]) -> bool {
        self.capacity(counts) >= self.need * (1.0 - SUM_ROUNDING)
    }

    /// Price of the replicas and of the transition to them, with the tie-break.
    fn objective(&self, counts: &[i32]) -> f64 {
        self.items.iter().zip(counts).map(|(item, count)| item.objective(*count, self.penalty)).sum()
    }

    /// The current replicas within the bounds and the units. It keeps an answer that a longer search would only have
    /// improved.
    fn current_answer(&self) -> Vec<i32> {
        let mut free = self.pools.clone();
        let kept = |item: &Item<'_>| {
            let wanted = item.supply.current.clamp(item.min, item.max) - item.min;
            item.min + reserve(&mut free[item.pool], item.units, wanted)
        };
        self.items.iter().map(kept).collect()
    }

    /// For each variant, the answer in which it serves all that the minimum of the others does not.
    fn single_variant_answers(&self) -> Vec<Vec<i32>> {
        let min: Vec<i32> = self.items.iter().map(|item| item.min).collect();
        let rest = (self.need - self.capacity(&min)).max(0.0);
        let alone = |(index, item): (usize, &Item<'_>)| {
            let mut counts = min.clone();
            counts[index] = item.min.saturating_add(exact_replicas_for(rest, item.rate)).min(item.max);
            counts
        };
        self.items.iter().enumerate().map(alone).collect()
    }

    fn greedy(&self) -> Vec<i32> {
        let mut counts: Vec<i32> = self.items.iter().map(|item| item.min).collect();
        let mut free = self.pools.clone();
        let mut rest = (self.need - self.capacity(&counts)).max(0.0);
        for (count, item) in counts.iter_mut().zip(&self.items) {
            let wanted = whole_replicas(rest / item.rate).min(item.max - item.min);
            let added = reserve(&mut free[item.pool], item.units, wanted);
            *count += added;
            rest = (rest - f64::from(added) * item.rate).max(0.0);
        }
        if rest > 0.0 {
            let fits = |index: &usize| {
                let item = &self.items[*index];
                counts[*index] < item.max && item.rate >= rest * (1.0 - ROUNDING) && free[item.pool] >= item.units
            };
            let cheapest = (0..self.items.len()).filter(fits);
            let last = cheapest.min_by(|a, b| self.items[*a].cost.total_cmp(&self.items[*b].cost));
            if let Some(last) = last {
                counts[last] += 1;
                rest = 0.0;
            }
        }
        for (count, item) in counts.iter_mut().zip(&self.items) {
            let wanted = exact_replicas_for(rest, item.rate).min(item.max - *count);
            let added = reserve(&mut free[item.pool], item.units, wanted);
            *count += added;
            rest = (rest - f64::from(added) * item.rate).max(0.0);
        }
        counts
    }

    fn answer(&self, counts: &[i32], proven: bool) -> Split {
        let pairs = || self.items.iter().map(|item| item.supply).zip(counts.iter().copied());
        let price =
            |supply: &VariantSupply| Some(supply.cost_per_replica).filter(|cost| cost.is_finite()).unwrap_or(0.0);
        let all = || pairs().chain(self.held.iter().copied());
        let changed =
            |(supply, count): (&VariantSupply, i32)| f64::from(count.abs_diff(supply.current)) * price(supply);
        let capacity = self.capacity(counts);
        let unserved = if capacity >= self.demand * (1.0 - ROUNDING) { 0.0 } else { self.demand - capacity };
        Split {
            replicas: all().map(|(supply, count)| (supply.name.clone(), count)).collect(),
            capacity,
            cost: all().map(|(supply, count)| f64::from(count) * price(supply)).sum(),
            transition_cost: self.penalty * pairs().map(changed).sum::<f64>(),
            unserved,
            held: self.held.iter().map(|(supply, _)| supply.name.clone()).collect(),
            below_min: self.below_min.clone(),
            proven,
        }
    }
}

fn units_above_min(item: &Item<'_>) -> i64 {
    i64::from(item.max - item.min).saturating_mul(item.units)
}

/// Takes up to `count` replicas out of a pool and returns how many fit.
fn reserve(pool: &mut i64, units: i64, count: i32) -> i32 {
    let fitting = i32::try_from(*pool / units).unwrap_or(i32::MAX).min(count).max(0);
    *pool -= i64::from(fitting).saturating_mul(units);
    fitting
}

/// Rounds up to whole replicas without tolerance, because the demand has one.
#[expect(clippy::cast_possible_truncation, reason = "clamped to a range of i32")]
fn exact_replicas_for(demand: f64, rate_per_replica: f64) -> i32 {
    (demand / rate_per_replica).ceil().clamp(0.0, MAX_REPLICAS) as i32
}

/// Rounds down to whole replicas, between 0 and [`MAX_REPLICAS`].
#[expect(clippy::cast_possible_truncation, reason = "clamped to a range of i32")]
fn whole_replicas(quotient: f64) -> i32 {
    (quotient * (1.0 + ROUNDING)).floor().clamp(0.0, MAX_REPLICAS) as i32
}

/// Replicas of an item at one price.
#[derive(Clone, Copy)]
struct Segment {
    item: usize,
    rate: f64,
    cost_per_rate: f64,
}

struct Search<'a> {
    problem: &'a Problem<'a>,
    best: Vec<i32>,
    best_objective: f64,
    steps: u32,
    /// Segments of an item and all later ones, the cheapest rate first.
    segments: Vec<Vec<Segment>>,
    /// Highest rate of a replica among an item and all later ones.
    highest_rates: Vec<f64>,
    /// Replicas of an item and all later ones with their price, the cheapest replica first.
    prices: Vec<Vec<(f64, f64)>>,
    counts: Vec<i32>,
    free: Vec<i64>,
}

impl<'a> Search<'a> {
    fn new(problem: &'a Problem<'a>, steps: u32) -> Self {
        Self {
            problem,
            best: problem.largest.clone(),
            best_objective: f64::INFINITY,
            steps: steps.max(1),
            segments: Vec::new(),
            highest_rates: Vec::new(),
            prices: Vec::new(),
            counts: problem.items.iter().map(|item| item.min).collect(),
            free: problem.pools.clone(),
        }
    }

    /// Keeps an answer if it is the best one.
    fn offer(&mut self, counts: &[i32]) {
        if !self.problem.serves(counts) {
            return;
        }
        let objective = self.problem.objective(counts);
        let order = objective.total_cmp(&self.best_objective).then_with(|| counts.cmp(&self.best));
        if order == Ordering::Less {
            self.best_objective = objective;
            counts.clone_into(&mut self.best);
        }
    }

    fn run(&mut self) {
        if self.problem.items.is_empty() {
            return;
        }
        self.prepare();
        let min: Vec<i32> = self.problem.items.iter().map(|item| item.min).collect();
        let rest = self.problem.need - self.problem.capacity(&min);
        let cost = self.problem.objective(&min);
        self.counts = min;
        self.descend(0, rest, cost);
    }

    fn prepare(&mut self) {
        // Keeping a replica costs less than its price, because its removal costs something, and adding one costs more.
        let (kept, added) = (1.0 - self.problem.penalty, 1.0 + self.problem.penalty);
        self.segments.clear();
        self.highest_rates.clear();
        self.prices.clear();
        for first in 0..self.problem.items.len() {
            let mut segments = Vec::new();
            let mut highest_rate: f64 = 0.0;
            let mut prices = Vec::new();
            for (index, item) in self.problem.items.iter().enumerate().skip(first) {
                let current = item.supply.current.clamp(item.min, item.max);
                for (count, factor) in [(current - item.min, kept), (item.max - current, added)] {
                    if count > 0 {
                        let cost = item.cost * factor;
                        let rate = f64::from(count) * item.rate;
                        segments.push(Segment { item: index, rate, cost_per_rate: cost / item.rate });
                        highest_rate = highest_rate.max(item.rate);
                        prices.push((f64::from(count), cost));
                    }
                }
            }
            segments.sort_by(|a, b| a.cost_per_rate.total_cmp(&b.cost_per_rate).then(a.item.cmp(&b.item)));
            self.segments.push(segments);
            prices.sort_by(|a, b| a.1.total_cmp(&b.1));
            self.highest_rates.push(highest_rate);
            self.prices.push(prices);
        }
    }

    /// Least cost at which the items from `first` serve `rest` if parts of replicas could be bought. Infinite if they
    /// cannot serve it.
    fn fractional_cost(&self, first: usize, mut rest: f64) -> f64 {
        let mut cost = 0.0;
        for segment in self.segments.get(first).map_or(&[][..], Vec::as_slice) {
            if rest <= 0.0 {
                return cost;
            }
            let rate = rest.min(segment.rate);
            cost += rate * segment.cost_per_rate;
            rest -= rate;
        }
        if rest > self.problem.need * ROUNDING { f64::INFINITY } else { cost }
    }

    /// Rate of an item in the fractional answer.
    fn fractional_rate(&self, first: usize, mut rest: f64) -> f64 {
        let mut own = 0.0;
        for segment in &self.segments[first] {
            let rate = rest.min(segment.rate).max(0.0);
            rest -= rate;
            if segment.item == first {
                own += rate;
            }
        }
        own
    }

    /// Least cost of whole replicas: as many as are needed if each has the highest rate, at the lowest prices.
    fn whole_cost(&self, first: usize, rest: f64) -> f64 {
        let (Some(rate), Some(prices)) = (self.highest_rates.get(first), self.prices.get(first)) else { return 0.0 };
        if rest <= 0.0 || *rate <= 0.0 {
            return 0.0;
        }
        let mut replicas = (rest / rate * (1.0 - ROUNDING)).ceil();
        let mut cost = 0.0;
        for (count, price) in prices {
            let taken = replicas.min(*count);
            cost += taken * price;
            replicas -= taken;
            if replicas <= 0.0 {
                break;
            }
        }
        cost
    }

    fn exceeds_best(&self, objective: f64) -> bool {
        objective > self.best_objective * (1.0 + SUM_ROUNDING)
    }

    /// Tries the counts of an item, beginning with those of the fractional answer. Its cost is convex in the count, so
    /// that each direction ends at the first count that is too expensive.
    fn descend(&mut self, index: usize, rest: f64, cost: f64) {
        let problem = self.problem;
        let Some(item) = problem.items.get(index) else {
            let counts = std::mem::take(&mut self.counts);
            self.offer(&counts);
            self.counts = counts;
            return;
        };
        let room = i32::try_from(self.free[item.pool] / item.units).unwrap_or(i32::MAX);
        let needed = exact_replicas_for(rest.max(0.0), item.rate);
        let most = (item.max - item.min).min(room).min(needed);
        if index + 1 == problem.items.len() {
            self.visit(index, most, rest, cost);
            return;
        }
        let start = whole_replicas(self.fractional_rate(index, rest) / item.rate).min(most);
        for extra in start + 1..=most {
            if !self.visit(index, extra, rest, cost) {
                break;
            }
        }
        for extra in (0..=start).rev() {
            if !self.visit(index, extra, rest, cost) {
                break;
            }
        }
    }

    /// Continues with `extra` replicas above the minimum. `false` if this direction has ended.
    fn visit(&mut self, index: usize, extra: i32, rest: f64, cost: f64) -> bool {
        if self.steps == 0 {
            return false;
        }
        self.steps -= 1;
        let item = &self.problem.items[index];
        let count = item.min + extra;
        let penalty = self.problem.penalty;
        let cost = cost - item.objective(item.min, penalty) + item.objective(count, penalty);
        let rest = rest - f64::from(extra) * item.rate;
        if self.exceeds_best(cost + self.fractional_cost(index + 1, rest)) {
            return false;
        }
        if self.exceeds_best(cost + self.whole_cost(index + 1, rest)) {
            return true;
        }
        let units = i64::from(extra).saturating_mul(item.units);
        self.free[item.pool] -= units;
        self.counts[index] = count;
        self.descend(index + 1, rest, cost);
        self.counts[index] = self.problem.items[index].min;
        self.free[self.problem.items[index].pool] += units;
        true
    }
}
