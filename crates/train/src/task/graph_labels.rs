//! Graph classification with several labels, of which some may not be known.

super::of_graphs::of_graphs! {
    /// Graph classification with several labels, of which some may not be known.
    GraphLabels, "graph-each", GraphClassification, as NodeLabels
}
