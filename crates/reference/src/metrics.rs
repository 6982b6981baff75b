//! The reference of metrics: name, type, labels and help, from where services register them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};
use syn::parse::{Parse, ParseStream};
use syn::visit::{self, Visit};

use crate::sources::{self, Source};

/// Function that names the gauges that a service renders without a registry. Its match arms are
/// tuples of name, unit and help.
const RENDERED_FAMILIES: &str = "family";
/// Label of the gauges of [`RENDERED_FAMILIES`].
const RENDERED_LABEL: &str = "quantile";
/// Services by the prefix of their metrics, in the order of the page.
const SERVICES: [(&str, &str); 7] = [
    ("longhaul_serve", "Servers"),
    ("longhaul_depot", "Depots"),
    ("longhaul_offramp", "Off-ramps"),
    ("longhaul_control", "Controllers"),
    ("longhaul_onramp", "On-ramps"),
    ("longhaul_agent", "Agents"),
    ("longhaul_accounts", "Accounts"),
];

/// Type of a metric, as OpenMetrics names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and falls.
    Gauge,
    /// A distribution, as `_bucket`, `_sum` and `_count`.
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A registered metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metric {
    /// Prefix of its service, such as `longhaul_depot`.
    pub service: String,
    /// Name on the metrics page, with prefix, unit and the counters' `_total`.
    pub name: String,
    /// Type.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Help text, without its final full stop.
    pub help: String,
}

impl Metric {
    /// Returns the names of its samples on the metrics page.
    #[must_use]
    pub fn samples(&self) -> Vec<String> {
        let name = &self.name;
        match self.kind {
            Kind::Counter | Kind::Gauge => vec![name.clone()],
            Kind::Histogram => ["", "_bucket", "_sum", "_count"]
                .iter()
                .map(|suffix| format!("{name}{suffix}"))
                .collect(),
        }
    }
}

/// Returns the metrics of all services.
///
/// # Errors
/// A registration has a form that is not understood.
pub fn collect(sources: &[Source]) -> Result<Vec<Metric>> {
    let mut by_crate: BTreeMap<&str, Vec<&syn::File>> = BTreeMap::new();
    for source in sources {
        if sources::has_metrics(&source.path) {
            let files = by_crate.entry(&source.crate_name).or_default();
            files.push(&source.file);
        }
    }
    let mut metrics = Vec::new();
    for files in by_crate.values() {
        metrics.extend(registered(files)?);
    }
    Ok(metrics)
}

/// Returns the page: a table of metrics for each service.
#[must_use]
pub fn page(metrics: &[Metric]) -> String {
    let mut page = String::new();
    for (service, title) in SERVICES {
        let _ = write!(
            page,
            "## {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n"
        );
        for metric in metrics.iter().filter(|metric| metric.service == service) {
            let labels: Vec<String> = metric
                .labels
                .iter()
                .map(|name| format!("`{name}`"))
                .collect();
            let Metric {
                name, kind, help, ..
            } = metric;
            let (kind, labels) = (kind.as_str(), labels.join(", "));
            let _ = writeln!(page, "| `{name}` | {kind} | {labels} | {help} |");
        }
        page.push('\n');
    }
    page
}

/// Returns the metrics that the files of a crate register.
fn registered(files: &[&syn::File]) -> Result<Vec<Metric>> {
    let mut found = Registrations::default();
    for file in files {
        found.visit_file(file);
    }
    let service = match found.prefix {
        Some(Prefix::Text(prefix)) => prefix,
        Some(Prefix::Constant(name)) => found.constants.remove(&name).unwrap_or_default(),
        None => String::new(),
    };
    let mut metrics = Vec::new();
    for Registration {
        name,
        help,
        unit,
        source,
    } in found.registrations
    {
        let Some((kind, label_type)) = source.as_ref().and_then(|name| found.types.get(name))
        else {
            bail!("the type of the metric {name} is not in the file that registers it");
        };
        let labels = match label_type {
            None => Vec::new(),
            Some(label_type) => match found.label_sets.get(label_type) {
                Some(labels) => labels.clone(),
                None => bail!("the labels of {name}, {label_type}, are not in its file"),
            },
        };
        let unit = unit.map(|unit| format!("_{unit}")).unwrap_or_default();
        let total = if *kind == Kind::Counter { "_total" } else { "" };
        metrics.push(Metric {
            name: format!("{service}_{name}{unit}{total}"),
            service: service.clone(),
            kind: *kind,
            labels,
            help,
        });
    }
    for (name, help) in found.rendered {
        metrics.push(Metric {
            name: format!("{service}_{name}"),
            service: service.clone(),
            kind: Kind::Gauge,
            labels: vec![RENDERED_LABEL.to_owned()],
            help,
        });
    }
    Ok(metrics)
}

/// A call of `register` or `register_with_unit`.
struct Registration {
    name: String,
    help: String,
    unit: Option<String>,
    /// Field or variable that holds the registered metric.
    source: Option<String>,
}

/// Argument of `Registry::with_prefix`.
enum Prefix {
    Text(String),
    Constant(String),
}

/// Collector of registrations, and of the types that they use.
#[derive(Default)]
struct Registrations {
    prefix: Option<Prefix>,
    /// Values of constant texts.
    constants: BTreeMap<String, String>,
    registrations: Vec<Registration>,
    /// Name and help of gauges that are rendered without a registry.
    rendered: Vec<(String, String)>,
    /// Kinds and label types of fields and variables, by their names.
    types: BTreeMap<String, (Kind, Option<String>)>,
    /// Fields of label sets, by the names of their types.
    label_sets: BTreeMap<String, Vec<String>>,
}

impl<'ast> Visit<'ast> for Registrations {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !sources::is_test(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.ident == RENDERED_FAMILIES {
            let mut tuples = FamilyTuples::default();
            tuples.visit_item_fn(function);
            self.rendered.extend(tuples.families);
        }
        visit::visit_item_fn(self, function);
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        if let Some(value) = text(&item.expr) {
            self.constants.insert(item.ident.to_string(), value);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        let fields = item
            .fields
            .iter()
            .filter_map(|field| Some((field.ident.as_ref()?, &field.ty)));
        let mut names = Vec::new();
        for (name, ty) in fields {
            names.push(name.to_string());
            if let syn::Type::Path(path) = ty
                && let Some(metric_type) = metric_type(&path.path)
            {
                self.types.insert(name.to_string(), metric_type);
            }
        }
        self.label_sets.insert(item.ident.to_string(), names);
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        if let Ok(LabelMacro { name, label }) = item.mac.parse_body() {
            self.label_sets.insert(name, vec![label]);
        }
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        if let syn::Pat::Ident(name) = &local.pat
            && let Some(init) = &local.init
            && let syn::Expr::Call(call) = &*init.expr
            && let syn::Expr::Path(constructor) = &*call.func
            && let Some(metric_type) = metric_type(&constructor.path)
        {
            self.types.insert(name.ident.to_string(), metric_type);
        }
        visit::visit_local(self, local);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(function) = &*call.func
            && last_name(&function.path) == "with_prefix"
        {
            self.prefix = match call.args.first() {
                Some(syn::Expr::Path(constant)) => {
                    Some(Prefix::Constant(last_name(&constant.path)))
                }
                Some(literal) => text(literal).map(Prefix::Text),
                None => None,
            };
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let unit = match call.method.to_string().as_str() {
            "register" => Some(None),
            "register_with_unit" => Some(call.args.get(2).and_then(unit)),
            _ => None,
        };
        let texts = call
            .args
            .first()
            .and_then(text)
            .zip(call.args.get(1).and_then(text));
        if let Some(unit) = unit
            && let Some((name, help)) = texts
        {
            let source = call.args.last().and_then(source_name);
            self.registrations.push(Registration {
                name,
                help,
                unit,
                source,
            });
        }
        visit::visit_expr_method_call(self, call);
    }
}

/// Collector of tuples of three texts: name, unit and help of a gauge.
#[derive(Default)]
struct FamilyTuples {
    families: Vec<(String, String)>,
}

impl<'ast> Visit<'ast> for FamilyTuples {
    fn visit_expr_tuple(&mut self, tuple: &'ast syn::ExprTuple) {
        let texts: Vec<String> = tuple.elems.iter().filter_map(text).collect();
        if let [name, _unit, help] = texts.as_slice() {
            self.families.push((name.clone(), help.clone()));
        }
    }
}

/// The body of a `label!` macro: documentation, and a name with one label in braces.
struct LabelMacro {
    name: String,
    label: String,
}

impl Parse for LabelMacro {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        syn::Attribute::parse_outer(input)?;
        let name: syn::Ident = input.parse()?;
        let label;
        syn::braced!(label in input);
        let label: syn::Ident = label.parse()?;
        Ok(Self {
            name: name.to_string(),
            label: label.to_string(),
        })
    }
}

/// Returns kind and label type of a metric's type, or of a path to its constructor.
fn metric_type(path: &syn::Path) -> Option<(Kind, Option<String>)> {
    path.segments
        .iter()
        .find_map(|segment| match segment.ident.to_string().as_str() {
            "Counter" => Some((Kind::Counter, None)),
            "Gauge" => Some((Kind::Gauge, None)),
            "Histogram" => Some((Kind::Histogram, None)),
            "Family" => {
                let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else {
                    return None;
                };
                let mut types = arguments.args.iter().filter_map(|argument| match argument {
                    syn::GenericArgument::Type(syn::Type::Path(ty)) => Some(&ty.path),
                    _ => None,
                });
                let labels = last_name(types.next()?);
                let (kind, _) = metric_type(types.next()?)?;
                Some((kind, Some(labels)))
            }
            _ => None,
        })
}

fn last_name(path: &syn::Path) -> String {
    path.segments
        .last()
        .map(|segment| segment.ident.to_string())
        .unwrap_or_default()
}

/// Returns the value of a string literal.
fn text(expression: &syn::Expr) -> Option<String> {
    match expression {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    }
}

/// Returns the suffix of `Unit::Seconds` and its like.
fn unit(expression: &syn::Expr) -> Option<String> {
    match expression {
        syn::Expr::Path(path) => Some(last_name(&path.path).to_lowercase()),
        _ => None,
    }
}

/// Returns the field or variable that an expression like `metrics.field.clone()` reads.
fn source_name(expression: &syn::Expr) -> Option<String> {
    match expression {
        syn::Expr::MethodCall(call) => source_name(&call.receiver),
        syn::Expr::Field(syn::ExprField {
            member: syn::Member::Named(name),
            ..
        }) => Some(name.to_string()),
        syn::Expr::Path(path) => Some(last_name(&path.path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        const PREFIX: &str = "longhaul_depot";
        struct HopLabels { hop: &'static str, limit: &'static str }
        label!(
            /// Reason.
            ReasonLabel { reason }
        );
        struct Metrics {
            accepted: Counter,
            refused: Family<ReasonLabel, Counter>,
            limited: Family<HopLabels, Counter<f64, AtomicU64>>,
            dial_time: Histogram,
        }
        fn new() {
            let mut registry = Registry::with_prefix(PREFIX);
            let rules = Gauge::default();
            let metrics = Metrics::default();
            registry.register("connections", "Connections accepted", metrics.accepted.clone());
            registry.register("refused", "Refusals, by reason", metrics.refused.clone());
            registry.register_with_unit("hop", "Time", Unit::Seconds, metrics.limited.clone());
            registry.register_with_unit("dial", "Time", Unit::Seconds, metrics.dial_time.clone());
            registry.register("rules", "Rules", rules);
        }
        const fn family(rtt: bool) -> (&'static str, &'static str, &'static str) {
            match rtt { _ => ("path_rtt_seconds", "seconds", "Newest round-trip times") }
        }
        #[cfg(test)]
        mod tests { fn t() { registry.register("test", "Test", metrics.accepted.clone()); } }
    "#;

    fn metrics() -> Vec<Metric> {
        registered(&[&syn::parse_file(FILE).unwrap()]).unwrap()
    }

    #[test]
    fn names_have_prefix_unit_and_total() {
        let names: Vec<String> = metrics().into_iter().map(|metric| metric.name).collect();
        assert_eq!(
            names,
            [
                "longhaul_depot_connections_total",
                "longhaul_depot_refused_total",
                "longhaul_depot_hop_seconds_total",
                "longhaul_depot_dial_seconds",
                "longhaul_depot_rules",
                "longhaul_depot_path_rtt_seconds",
            ]
        );
    }

    #[test]
    fn kinds_and_labels_come_from_the_types() {
        let found = metrics();
        let described: Vec<(Kind, Vec<String>)> = found
            .into_iter()
            .map(|metric| (metric.kind, metric.labels))
            .collect();
        let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(
            described,
            [
                (Kind::Counter, labels(&[])),
                (Kind::Counter, labels(&["reason"])),
                (Kind::Counter, labels(&["hop", "limit"])),
                (Kind::Histogram, labels(&[])),
                (Kind::Gauge, labels(&[])),
                (Kind::Gauge, labels(&["quantile"])),
            ]
        );
    }

    #[test]
    fn unknown_types_are_an_error() {
        let file = "fn new() { registry.register(\"a\", \"b\", unknown); }";
        let error = registered(&[&syn::parse_file(file).unwrap()]).unwrap_err();
        assert!(error.to_string().contains("the metric a"), "{error}");
    }

    #[test]
    fn page_has_a_row_for_each_metric() {
        let page = page(&metrics());
        let row = "| `longhaul_depot_hop_seconds_total` | counter | `hop`, `limit` | Time |";
        assert!(
            page.contains(&format!("## Depots\n\n{}", "| metric |")),
            "{page}"
        );
        assert!(page.contains(row), "{page}");
    }
}
