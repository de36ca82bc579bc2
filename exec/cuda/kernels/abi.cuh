// Code generated from abi.go and layout.go by their tests. DO NOT EDIT.
#pragma once

enum : unsigned {
    TYPE_Q4_0 = 0,
    TYPE_Q4_1 = 1,
    TYPE_Q5_0 = 2,
    TYPE_Q5_1 = 3,
    TYPE_Q8_0 = 4,
    TYPE_Q4_K = 5,
    TYPE_Q5_K = 6,
    TYPE_Q6_K = 7,
    TYPE_F32 = 8,
    TYPE_F16 = 9,
    TYPE_BF16 = 10,
    TYPE_F8_E4M3 = 11,
};

enum : unsigned {
    NO_ACTIVATION = 0,
    SILU = 1,
    GELU_TANH = 2,
    GELU_ERF = 3,
};

struct Weight {
    const unsigned char* data;
    const float* scales;
    unsigned type;
    unsigned rows;
};
static_assert(sizeof(Weight) == 24, "no padding but what is a field");

struct Operand {
    Weight weight;
    const float* bias;
    float* out;
};
static_assert(sizeof(Operand) == 40, "no padding but what is a field");

struct Embed {
    const int* tokens;
    const int* taken;
    float* y;
    Weight table;
    float scale;
    unsigned n;
    unsigned m;
    unsigned first;
};
static_assert(sizeof(Embed) == 64, "no padding but what is a field");

struct Product {
    const void* x;
    const float* norm;
    const float* residual;
    Operand ops[3];
    unsigned k;
    unsigned m;
    unsigned part;
    unsigned act;
    float eps;
    unsigned padding9;
};
static_assert(sizeof(Product) == 168, "no padding but what is a field");

struct Norm {
    const float* x;
    const float* w;
    const float* add;
    void* y;
    unsigned n;
    unsigned m;
    unsigned quantized;
    float eps;
};
static_assert(sizeof(Norm) == 48, "no padding but what is a field");

struct Attention {
    const float* q;
    const float* k;
    const float* v;
    const int* pos;
    const int* seq;
    const int* pages;
    void* k_cache;
    void* v_cache;
    const float* q_norm;
    const float* k_norm;
    const float2* rope;
    float* out;
    float* work;
    unsigned* arrived;
    unsigned heads;
    unsigned kv_heads;
    unsigned head_dim;
    unsigned rot;
    unsigned positions;
    unsigned window;
    unsigned ring;
    unsigned seq_pages;
    unsigned halves;
    unsigned stored;
    unsigned m;
    unsigned splits;
    float scale;
    float eps;
};
static_assert(sizeof(Attention) == 168, "no padding but what is a field");

struct Select {
    const float* x;
    const int* rows;
    float* y;
    unsigned n;
    unsigned m;
};
static_assert(sizeof(Select) == 32, "no padding but what is a field");

struct Sum {
    const float* x0;
    const float* x1;
    const float* x2;
    const float* res;
    float* y;
    unsigned n;
    unsigned padding6;
};
static_assert(sizeof(Sum) == 48, "no padding but what is a field");

struct Concat {
    const float* x0;
    const float* x1;
    const float* x2;
    float* y;
    unsigned n0;
    unsigned n1;
    unsigned n2;
    unsigned m;
};
static_assert(sizeof(Concat) == 48, "no padding but what is a field");

struct Top {
    const float* x;
    int* ids;
    float* values;
    int* work;
    unsigned* arrived;
    unsigned n;
    unsigned m;
    unsigned k;
    unsigned padding8;
};
static_assert(sizeof(Top) == 56, "no padding but what is a field");
