// Package capacity is the importable part of the capacity model: it turns a load into demand on five resources, says
// which one runs out first, and predicts what a run of the load generator will count.
//
// Two questions, two entry points. Predict takes Inputs, the documents' way of describing a load, and answers with a
// Table of demand, budget and utilisation. PredictRun takes RunInputs, the exact rules of a scenario (fixed numbers of
// users and devices, active sets, acknowledgement timers), and answers with Figures that carry a 95 % interval over
// seeds; loadgen stores them before a run and compares them afterwards.
//
// Equations are named after the documents and books they come from. The package uses only the standard library, holds no
// state, and all of its functions are safe for concurrent use.
package capacity
