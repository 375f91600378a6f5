//! The rules of a schema (`x-kubernetes-validations`), in as much of CEL as the project's CRDs use.
//! Comes in: a schema and an object of the right structure; goes out: the rules' own messages where they do not hold.

use std::iter::Peekable;
use std::vec::IntoIter;

use serde_json::Value;

use super::{Fault, below};

pub(super) fn check(schema: &Value, object: &Value) -> Vec<Fault> {
    let mut faults = Vec::new();
    if let (Some(spec), Some(given)) = (schema.pointer("/properties/spec"), object.get("spec")) {
        node(spec, given, "spec", &mut faults);
    }
    faults
}

/// Whether a rule can be evaluated here.
#[cfg(test)]
pub(super) fn understood(rule: &str) -> bool {
    parse(rule).is_some()
}

fn node(schema: &Value, given: &Value, path: &str, faults: &mut Vec<Fault>) {
    for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
        let holds = rule["rule"].as_str().and_then(parse).and_then(|parsed| parsed.value(given)?.as_bool());
        // A rule that cannot be evaluated is the API server's to judge.
        if holds == Some(false) {
            let place = rule["fieldPath"].as_str().unwrap_or_default();
            let message = rule["message"].as_str().or(rule["rule"].as_str()).unwrap_or_default();
            faults.push(Fault::new(&format!("{path}{place}"), message));
        }
    }
    match given {
        Value::Object(fields) => {
            for (name, given) in fields {
                let known = &schema["properties"][name];
                let inner = if known.is_null() { &schema["additionalProperties"] } else { known };
                node(inner, given, &below(path, name), faults);
            }
        }
        Value::Array(items) => {
            for (place, item) in items.iter().enumerate() {
                node(&schema["items"], item, &format!("{path}[{place}]"), faults);
            }
        }
        _ => {}
    }
}

enum Expression {
    Constant(Value),
    /// Steps from `self`.
    Field(Vec<String>),
    Has(Vec<String>),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    If(Box<Self>, Box<Self>, Box<Self>),
    Compare(Comparison, Box<Self>, Box<Self>),
}

#[derive(Clone, Copy)]
enum Comparison {
    Equal,
    Different,
    AtLeast,
    AtMost,
    Above,
    Below,
}

impl Expression {
    /// None: it has no value, as a field that is not there.
    fn value(&self, of: &Value) -> Option<Value> {
        let truth = |one: &Self| one.value(of)?.as_bool();
        Some(match self {
            Self::Constant(value) => value.clone(),
            Self::Field(steps) => walk(of, steps)?.clone(),
            Self::Has(steps) => Value::Bool(walk(of, steps).is_some()),
            Self::Not(one) => Value::Bool(!truth(one)?),
            // As in CEL, one side decides even if the other has no value.
            Self::And(one, other) => Value::Bool(match (truth(one), truth(other)) {
                (Some(false), _) | (_, Some(false)) => false,
                (one, other) => one? && other?,
            }),
            Self::Or(one, other) => Value::Bool(match (truth(one), truth(other)) {
                (Some(true), _) | (_, Some(true)) => true,
                (one, other) => one? || other?,
            }),
            Self::If(condition, then, otherwise) => {
                return if truth(condition)? { then.value(of) } else { otherwise.value(of) };
            }
            Self::Compare(how, one, other) => Value::Bool(compare(*how, &one.value(of)?, &other.value(of)?)?),
        })
    }
}

fn walk<'a>(of: &'a Value, steps: &[String]) -> Option<&'a Value> {
    steps.iter().try_fold(of, |value, step| value.get(step))
}

fn compare(how: Comparison, one: &Value, other: &Value) -> Option<bool> {
    Some(match how {
        Comparison::Equal => one == other,
        Comparison::Different => one != other,
        Comparison::AtLeast => one.as_f64()? >= other.as_f64()?,
        Comparison::AtMost => one.as_f64()? <= other.as_f64()?,
        Comparison::Above => one.as_f64()? > other.as_f64()?,
        Comparison::Below => one.as_f64()? < other.as_f64()?,
    })
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Sign(&'static str),
    Word(String),
    Constant(Value),
}

/// Longer ones first, so that none hides behind another.
const SIGNS: [&str; 14] = ["&&", "||", "==", "!=", ">=", "<=", ">", "<", "!", "(", ")", "?", ":", "."];

fn tokens(rule: &str) -> Option<Vec<Token>> {
    let mut found = Vec::new();
    let mut rest = rule.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        let taken = if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            found.push(Token::Sign(sign));
            sign.len()
        } else if first == '\'' || first == '"' {
            let text = &rest[1..];
            let end = text.find(first).filter(|end| !text[..*end].contains('\\'))?;
            found.push(Token::Constant(Value::from(&text[..end])));
            end + 2
        } else if first.is_ascii_digit() {
            found.push(Token::Constant(Value::from(rest[..word].parse::<i64>().ok()?)));
            word
        } else {
            found.push(match &rest[..word] {
                "" => return None,
                "true" => Token::Constant(Value::Bool(true)),
                "false" => Token::Constant(Value::Bool(false)),
                name => Token::Word(name.to_owned()),
            });
            word
        };
        rest = rest[taken..].trim_start();
    }
    Some(found)
}

fn parse(rule: &str) -> Option<Expression> {
    let mut parser = Parser { rest: tokens(rule)?.into_iter().peekable() };
    let parsed = parser.choice()?;
    parser.rest.next().is_none().then_some(parsed)
}

/// Each function reads what binds tighter than the one before it.
struct Parser {
    rest: Peekable<IntoIter<Token>>,
}

impl Parser {
    fn take(&mut self, sign: &'static str) -> bool {
        self.rest.next_if_eq(&Token::Sign(sign)).is_some()
    }

    fn choice(&mut self) -> Option<Expression> {
        let condition = self.either()?;
        if !self.take("?") {
            return Some(condition);
        }
        let then = self.either()?;
        let otherwise = if self.take(":") { self.choice()? } else { return None };
        Some(Expression::If(condition.into(), then.into(), otherwise.into()))
    }

    fn either(&mut self) -> Option<Expression> {
        let mut one = self.both()?;
        while self.take("||") {
            one = Expression::Or(one.into(), self.both()?.into());
        }
        Some(one)
    }

    fn both(&mut self) -> Option<Expression> {
        let mut one = self.comparison()?;
        while self.take("&&") {
            one = Expression::And(one.into(), self.comparison()?.into());
        }
        Some(one)
    }

    fn comparison(&mut self) -> Option<Expression> {
        let one = self.single()?;
        let signs = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Different),
            (">=", Comparison::AtLeast),
            ("<=", Comparison::AtMost),
            (">", Comparison::Above),
            ("<", Comparison::Below),
        ];
        match signs.into_iter().find(|(sign, _)| self.take(sign)) {
            Some((_, how)) => Some(Expression::Compare(how, one.into(), self.single()?.into())),
            None => Some(one),
        }
    }

    fn single(&mut self) -> Option<Expression> {
        if self.take("!") {
            return Some(Expression::Not(self.single()?.into()));
        }
        if self.take("(") {
            let inner = self.choice()?;
            return self.take(")").then_some(inner);
        }
        match self.rest.next()? {
            Token::Constant(value) => Some(Expression::Constant(value)),
            Token::Word(word) if word == "self" => Some(Expression::Field(self.steps()?)),
            Token::Word(word) if word == "has" && self.take("(") => {
                let own = self.rest.next()? == Token::Word("self".to_owned());
                let steps = self.steps().filter(|steps| own && !steps.is_empty())?;
                self.take(")").then_some(Expression::Has(steps))
            }
            _ => None,
        }
    }

    fn steps(&mut self) -> Option<Vec<String>> {
        let mut steps = Vec::new();
        while self.take(".") {
            match self.rest.next()? {
                Token::Word(step) => steps.push(step),
                _ => return None,
            }
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn holds(rule: &str, of: Value) -> Option<bool> {
        parse(rule).unwrap_or_else(|| panic!("{rule}")).value(&of)?.as_bool()
    }

    #[test]
    fn rules_mean_what_they_mean_in_cel() {
        let cases = [
            ("!(has(self.a) && has(self.b))", json!({"a": 1, "b": 1}), Some(false)),
            ("!(has(self.a) && has(self.b))", json!({"a": 1}), Some(true)),
            ("!has(self.t) || self.t != 'redis' || has(self.e)", json!({"t": "redis"}), Some(false)),
            ("!has(self.t) || self.t != 'redis' || has(self.e)", json!({}), Some(true)),
            ("has(self.x.y) ? !has(self.a) : has(self.a)", json!({"x": {"y": 1}, "a": 1}), Some(false)),
            ("has(self.x.y) ? !has(self.a) : has(self.a)", json!({"a": 1}), Some(true)),
            ("self.max >= self.min", json!({"max": 3, "min": 3}), Some(true)),
            ("self.max > self.min", json!({"max": 3, "min": 3}), Some(false)),
            ("self.on || false", json!({"on": true}), Some(true)),
            ("self.gone", json!({}), None),
            ("self.gone && false", json!({}), Some(false)),
            ("1 < 2 && 'a' == \"a\"", json!({}), Some(true)),
        ];
        for (rule, of, wanted) in cases {
            assert_eq!(holds(rule, of.clone()), wanted, "{rule} of {of}");
        }
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        for rule in ["self.all(x, x > 0)", "oldSelf.a == self.a", "self.a ==", "has(self)", "'a\\'b' == 'c'", "(self.a"]
        {
            assert!(parse(rule).is_none(), "{rule}");
        }
    }
}
