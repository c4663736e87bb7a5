// What changes from step to step of an optimizer, as in optim.rs. Steps that are recorded are told it before every run.

struct Told {
    double go, scale, keep, rate, root_scale;
};
