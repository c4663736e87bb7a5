//! Graph regression: one or several numbers each, of which some may not be known.

super::of_graphs::of_graphs! {
    /// Graph regression: one or several numbers each, of which some may not be known.
    GraphRegression, "graph-regression", GraphRegression, as NodeRegression
}
