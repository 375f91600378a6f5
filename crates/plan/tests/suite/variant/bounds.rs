//! Bounds that change while nothing can be decided.

use steersman_plan::variant::Silence;

use super::{a_fleet, a_variant, decision, spec, stored, the_model};

#[test]
fn bounds_that_change_often_do_not_make_the_reason_longer() {
    let mut seen = a_fleet(vec![a_variant("v", "5", 4)], 0.4, 1.0);
    the_model(&mut seen).pods = Err(Silence::Missing);
    for (max, expected) in [
        (3, "Earlier (clamped from 4 to 3 for bounds)"),
        (2, "Earlier (clamped from 3 to 2 for bounds)"),
        (1, "Earlier (clamped from 2 to 1 for bounds)"),
    ] {
        spec(&mut seen.variants[0]).max_replicas = Some(max);
        seen.variants[0].target = a_variant("v", "5", max).target;
        assert_eq!(decision(&seen, "v").reason, expected);
        seen.variants[0].status = stored(&seen).into_values().next();
    }
}
