//! Maps the model of a GPU, as drivers and labels spell it, to a type that the profiler knows.

use serde_json::Value;
use steersman_api::dynamo::v1beta1::GpuSku;

/// The spelling in a request.
pub fn text(sku: &GpuSku) -> String {
    match serde_json::to_value(sku) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// All types that a request may name.
pub fn all() -> String {
    let mut all: Vec<String> =
        TOKENS.iter().flat_map(|(_, on_board, on_card)| [text(on_board), text(on_card)]).collect();
    all.dedup();
    all.join(", ")
}

pub fn infer(model: &str) -> Option<GpuSku> {
    let model = model.to_uppercase();
    let plain: String = model.chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let sxm = ["SXM", "HGX", "DGX", "HBM3"].into_iter().any(|token| plain.contains(token));
    // An `RTX A3000` is no A30.
    let parts: Vec<&str> = model.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let has = |token: &str| if token == "A30" { parts.contains(&token) } else { plain.contains(token) };
    let (_, on_board, on_card) = TOKENS.iter().find(|(token, ..)| has(token))?;
    Some(if sxm { on_board } else { on_card }.clone())
}

/// Tokens of models, with the type on a board (SXM) and on a card (PCIe). The first token that the model contains
/// decides, so the order counts: an `L40S` contains `L40` and `L4`.
const TOKENS: [(&str, GpuSku, GpuSku); 15] = [
    ("GB200", GpuSku::Gb200Sxm, GpuSku::Gb200Sxm),
    ("GB10", GpuSku::Gb10, GpuSku::Gb10),
    ("B200", GpuSku::B200Sxm, GpuSku::B200Sxm),
    ("H200", GpuSku::H200Sxm, GpuSku::H200Sxm),
    ("H100", GpuSku::H100Sxm, GpuSku::H100Pcie),
    ("A100", GpuSku::A100Sxm, GpuSku::A100Pcie),
    ("A30", GpuSku::A30, GpuSku::A30),
    ("L40S", GpuSku::L40s, GpuSku::L40s),
    ("L40", GpuSku::L40, GpuSku::L40),
    ("L4", GpuSku::L4, GpuSku::L4),
    ("V100", GpuSku::V100Sxm, GpuSku::V100Pcie),
    ("T4", GpuSku::T4, GpuSku::T4),
    ("MI200", GpuSku::Mi200, GpuSku::Mi200),
    ("MI250", GpuSku::Mi200, GpuSku::Mi200),
    ("MI300", GpuSku::Mi300, GpuSku::Mi300),
];
