//! Maps the model of a GPU, as drivers and labels spell it, to a type that the profiler knows.

use serde_json::Value;
use steersman_api::dynamo::v1beta1::GpuSku;

const KNOWN: [GpuSku; 17] = [
    GpuSku::Gb200Sxm,
    GpuSku::Gb10,
    GpuSku::B200Sxm,
    GpuSku::H200Sxm,
    GpuSku::H100Sxm,
    GpuSku::H100Pcie,
    GpuSku::A100Sxm,
    GpuSku::A100Pcie,
    GpuSku::A30,
    GpuSku::L40s,
    GpuSku::L40,
    GpuSku::L4,
    GpuSku::V100Sxm,
    GpuSku::V100Pcie,
    GpuSku::T4,
    GpuSku::Mi200,
    GpuSku::Mi300,
];

/// The spelling in a request.
pub fn text(sku: &GpuSku) -> String {
    match serde_json::to_value(sku) {
        Ok(Value::String(text)) => text,
        _ => String::new(),
    }
}

/// All types that a request may name.
pub fn all() -> String {
    KNOWN.iter().map(text).collect::<Vec<_>>().join(", ")
}

pub fn infer(model: &str) -> Option<GpuSku> {
    let plain: String = model.to_uppercase().chars().filter(|c| !matches!(c, ' ' | '-')).collect();
    let has = |token: &str| plain.contains(token);
    let sxm = ["SXM", "HGX", "DGX", "HBM3"].into_iter().any(has);
    let either = |on_board: GpuSku, on_card: GpuSku| if sxm { on_board } else { on_card };
    let sku = if has("GB200") {
        GpuSku::Gb200Sxm
    } else if has("GB10") {
        GpuSku::Gb10
    } else if has("B200") {
        GpuSku::B200Sxm
    } else if has("H200") {
        GpuSku::H200Sxm
    } else if has("H100") {
        either(GpuSku::H100Sxm, GpuSku::H100Pcie)
    } else if has("A100") {
        either(GpuSku::A100Sxm, GpuSku::A100Pcie)
    } else if is_word(model, "A30") {
        GpuSku::A30
    } else if has("L40S") {
        GpuSku::L40s
    } else if has("L40") {
        GpuSku::L40
    } else if has("L4") {
        GpuSku::L4
    } else if has("V100") {
        either(GpuSku::V100Sxm, GpuSku::V100Pcie)
    } else if has("T4") {
        GpuSku::T4
    } else if has("MI300") {
        GpuSku::Mi300
    } else if has("MI250") || has("MI200") {
        GpuSku::Mi200
    } else {
        return None;
    };
    Some(sku)
}

/// Matches a whole word, because an `RTX A3000` is no A30.
fn is_word(model: &str, word: &str) -> bool {
    model.to_uppercase().split(|c: char| !c.is_ascii_alphanumeric()).any(|token| token == word)
}
