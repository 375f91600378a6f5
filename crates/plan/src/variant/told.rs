//! The story of a number as its object keeps it.
//! Comes in: the stored story and the decision; goes out: the new story where it is another one, else the stored one, word
//! for word. Figures that move with every look are no other story.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use steersman_api::variant::v1alpha1::DecisionStory;

use super::plan::Decision;

/// An object tells what a person reads: so many letters of each stage.
const LONGEST: usize = 300;
/// With this ends what was longer.
const CUT: char = '…';
/// And so many limits.
const MOST: usize = 8;

pub fn told(stored: Option<&DecisionStory>, decision: &Decision, time: Time) -> DecisionStory {
    let story = &decision.story;
    let number = |number: i32| decision.replicas.map(|_| number.max(0));
    let new = DecisionStory {
        time: Some(time),
        wanted: number(story.wish),
        granted: number(story.granted),
        decided_by: Some(story.binding.word().to_owned()),
        signal: words(&story.signal),
        need: words(&story.need),
        solver: words(&story.solver),
        limits: story.limits.iter().filter_map(|limit| words(limit)).take(MOST).collect(),
        hold: story.hold.as_deref().and_then(words),
    };
    stored.filter(|stored| is_same(stored, &new)).cloned().unwrap_or(new)
}

fn words(text: &str) -> Option<String> {
    let kept = &text[..text.floor_char_boundary(LONGEST)];
    match (kept.len() < text.len(), kept.is_empty()) {
        (_, true) => None,
        (true, _) => Some(format!("{kept}{CUT}")),
        (false, _) => Some(kept.to_owned()),
    }
}

fn is_same(stored: &DecisionStory, new: &DecisionStory) -> bool {
    let numbers = |story: &DecisionStory| (story.granted, story.decided_by.clone());
    let limits = stored.limits.len() == new.limits.len()
        && stored.limits.iter().zip(&new.limits).all(|(one, other)| says_the_same(Some(one), Some(other)));
    numbers(stored) == numbers(new)
        && is_alike(stored, new)
        // Whom nobody waits for any more stands in the signal alone.
        && says_the_same(stored.signal.as_deref(), new.signal.as_deref())
        && says_the_same(stored.hold.as_deref(), new.hold.as_deref())
        && limits
}

/// A figure that gets longer moves the place at which a text is cut: such a one is compared as far as it goes.
fn says_the_same(one: Option<&str>, other: Option<&str>) -> bool {
    let (Some(one), Some(other)) = (one, other) else { return one == other };
    let cut = |text: &str| text.strip_suffix(CUT).map(without_figures);
    let (one, other, cut_one, cut_other) = (without_figures(one), without_figures(other), cut(one), cut(other));
    one == other
        || cut_one.is_some_and(|begin| other.starts_with(&begin))
        || cut_other.is_some_and(|begin| one.starts_with(&begin))
}

/// What is wanted beyond a limit moves with the load: it is told anew where it has doubled or halved.
fn is_alike(stored: &DecisionStory, new: &DecisionStory) -> bool {
    let side = |story: &DecisionStory| story.wanted.cmp(&story.granted);
    let (one, other) = (stored.wanted.unwrap_or_default(), new.wanted.unwrap_or_default());
    let close = one == other || one.max(other) < one.min(other).saturating_mul(2);
    side(stored) == side(new) && close
}

/// `1 of 3 ready replicas have metrics` is what `2 of 3` says, and `7m0s` is as old as `8m0s`: every run of figures is one. Those
/// of a name are not: `llm-1` is another pod than `llm-0`.
pub fn without_figures(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut named = false;
    let mut before = ' ';
    for letter in text.chars() {
        let inside = |letter: char| letter.is_alphanumeric() || ['-', '.', '_'].contains(&letter);
        if !inside(before) {
            named = letter.is_alphabetic();
        }
        before = letter;
        let letter = if letter.is_ascii_digit() && !named { '0' } else { letter };
        if named || letter != '0' || !plain.ends_with('0') {
            plain.push(letter);
        }
    }
    plain
}
