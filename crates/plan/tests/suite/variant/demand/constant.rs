//! Constant load: catching up takes at most two decisions, and then number and status hold.

use steersman_sim::fleet::Routing;

use super::world::{MINUTE, SECOND, Server, World, servers, text};

const INTERVALS: [u64; 3] = [15, 30, 60];
const STARTS: [u64; 4] = [10, 30, 60, 120];
const ROUTINGS: [Routing; 3] = [Routing::SharedQueue, Routing::InTurn, Routing::FewestRequests];

/// From one idle replica to `halves` half replicas' worth of load. `turn` spreads intervals, pod starts and routing.
fn run(server: Server, halves: u32, turn: usize) -> Result<(), String> {
    let replicas = f64::from(halves) / 2.0;
    let (interval, start, routing) = (INTERVALS[turn % 3], STARTS[turn / 3 % 4], ROUTINGS[turn / 2 % 3]);
    let mut world = World::new(server, interval * SECOND, start * SECOND, routing);
    world.limit_known = !turn.is_multiple_of(5);
    world.run_for(2 * MINUTE);
    world.load(replicas, 30);
    let (caught_up, backlog) = (world.fleet.now(), world.fleet.waiting());
    world.load(replicas, 60);
    let (least, most) = ((replicas - 1e-3).ceil() as i32, (replicas / 0.70).ceil() as i32);
    let fits = (least..=most).contains(&world.current);
    let holds = world.changes.iter().all(|change| change.at <= caught_up && change.to > change.from);
    let is_written = world.writes.iter().any(|at| *at > caught_up + 10 * MINUTE);
    // A queue that no other pod takes over shrinks by what its own pod can do beyond its share of the load.
    let drains = world.fleet.waiting() == 0 || world.fleet.waiting() * 4 < backlog * 3 || world.most_waiting < 20;
    if world.changes.len() <= 2 && fits && holds && drains && !is_written {
        return Ok(());
    }
    Err(format!(
        "{} load {replicas} interval {interval}s start {start}s {routing:?}: {}fits {least}..{most}, waiting {}, status \
         written {:?}",
        server.name,
        text(&world.changes),
        world.fleet.waiting(),
        world.writes.iter().map(|at| at / SECOND).collect::<Vec<_>>()
    ))
}

fn assert_all(server: usize) {
    let failures: Vec<String> =
        (1..=16).filter_map(|halves| run(servers()[server], halves, server * 5 + halves as usize).err()).collect();
    assert!(failures.is_empty(), "{} of 16 failed:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn short_sequence_bound_requests_hold_replicas() {
    assert_all(0);
}

#[test]
fn long_sequence_bound_requests_hold_replicas() {
    assert_all(1);
}

#[test]
fn short_cache_bound_requests_hold_replicas() {
    assert_all(2);
}

#[test]
fn long_cache_bound_requests_hold_replicas() {
    assert_all(3);
}
