//! Graph classification: one of several classes each.

super::of_graphs::of_graphs! {
    /// Graph classification: one of several classes each.
    GraphClass, "graph-class", GraphClassification, as NodeClass
}
