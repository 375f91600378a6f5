//! The story of a number as its object keeps it.
//! Comes in: the stored story and the decision; goes out: the new story where it is another one, else the stored one, word
//! for word. Figures that move with every look are no other story.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use steersman_api::variant::v1alpha1::DecisionStory;

use super::plan::Decision;

/// An object tells what a person reads: so many letters of each stage.
const LONGEST: usize = 300;
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
        (true, _) => Some(format!("{kept}…")),
        (false, _) => Some(kept.to_owned()),
    }
}

fn is_same(stored: &DecisionStory, new: &DecisionStory) -> bool {
    let numbers = |story: &DecisionStory| (story.granted, story.decided_by.clone());
    // Whom nobody waits for any more stands in the signal alone.
    let signal = |story: &DecisionStory| story.signal.as_deref().map(without_figures);
    let hold = |story: &DecisionStory| story.hold.as_deref().map(without_figures);
    let limits = |story: &DecisionStory| story.limits.iter().map(|limit| without_figures(limit)).collect::<Vec<_>>();
    numbers(stored) == numbers(new)
        && is_alike(stored, new)
        && signal(stored) == signal(new)
        && hold(stored) == hold(new)
        && limits(stored) == limits(new)
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
